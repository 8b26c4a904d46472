/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * GENEVE in and out, for XDP. In: who sent it, is it ours, what does it claim. Out: outer headers
 * copied from the next hop's template; only lengths, DS field, checksum, source port and the
 * option's fields are filled in, and nothing just written is read again.
 * Invariant: the inner packet is never changed, but for an outer CE copied into it (RFC 6040).
 */
#ifndef TUNNEL_H
#define TUNNEL_H

#include <stddef.h>
#include <linux/udp.h>
#include <ferry/wire.h>
#include "flow.h"

struct tunnel {
	__u32 outer; /* octets between Ethernet and the inner IP header; 0: not tunnelled */
	__u32 epoch;
	__u32 hops;
};

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline int to_self(const struct tuple *t)
{
	if (t->v6)
		return (cfg_self6[0] | cfg_self6[1]) && t->addr[2] == cfg_self6[0] &&
		       t->addr[3] == cfg_self6[1];
	return cfg_self4 && (__u32)(t->addr[0] >> 32) == cfg_self4;
}

static __always_inline int from_peer(const struct tuple *t, __u32 ifindex)
{
	struct ferry_peer_key key = { .ifindex = ifindex };

	addr_store(key.addr, t, 0);
	return bpf_map_lookup_elem(&peers, &key) != 0;
}

/* RFC 6040 section 4.2: an outer CE reaches the inner packet at offset, or it is dropped. */
static __always_inline int ce_in(ctx_t *ctx, __u32 offset, struct packet *p)
{
	struct ipv4 *ip = ctx_at(ctx, offset, sizeof(*ip));

	if (!(p->ds & ECN_MASK) || !ip)
		return -FERRY_R_ECN_ILLEGAL;
	if ((p->ds & ECN_MASK) == ECN_CE)
		return 0;
	if (p->t.v6) {
		((__u8 *)ip)[1] |= ECN_CE << 4;
	} else {
		/* RFC 1624: HC' = ~(~HC + ~m + m'); only the DS octet of the word changes */
		__u32 sum = (__u16)~ip->csum + (__u16)bpf_htons((p->ds | ECN_CE) - p->ds);

		ip->ds = p->ds | ECN_CE;
		ip->csum = fold(sum);
	}
	p->ds |= ECN_CE;
	count(FERRY_R_CE);
	return 0;
}

/*
 * p: the outer packet, UDP to our address and port; it is replaced by the inner one. TCP or UDP,
 * or minus a reason.
 */
static __always_inline int parse_tunnel(ctx_t *ctx, struct packet *p, struct tunnel *t)
{
	__u32 outer = p->t.v6 ? FERRY_OUTER6 : FERRY_OUTER4, length = p->length;
	int ce = (p->ds & ECN_MASK) == ECN_CE, next;
	struct cursor c = { ctx, p->l4 + sizeof(struct udphdr) };
	struct ferry_geneve *g = take(&c, sizeof(*g));
	struct ferry_option *o;
	__u32 protocol;

	if (!g || c.offset > ETH_HLEN + length) /* not what follows the IP packet */
		return -FERRY_R_MALFORMED;
	if ((*(__u32 *)g->vni & bpf_htonl(0xffffff00)) != cfg_vni)
		return -FERRY_R_FOREIGN_VNI;
	if (!from_peer(&p->t, ctx->ingress_ifindex))
		return -FERRY_R_ENCAP_UNKNOWN_PEER;
	o = take(&c, sizeof(*o));
	/* headers of constant length: a node of ours sends no outer options */
	if (!o || length < outer || c.offset != ETH_HLEN + outer ||
	    g->ver_optlen != sizeof(*o) / 4 || g->flags != FERRY_GENEVE_CRITICAL ||
	    o->class_ != bpf_htons(FERRY_GENEVE_CLASS) || o->type != FERRY_GENEVE_TYPE ||
	    (o->length & 0x1f) != FERRY_OPTION_WORDS)
		return -FERRY_R_GENEVE_BAD;
	if (cfg_tag && *(__u64 *)o->tag != cfg_tag)
		return -FERRY_R_ENCAP_TAG;
	t->outer = outer;
	t->epoch = bpf_ntohl(o->epoch);
	t->hops = o->hops;
	protocol = bpf_ntohs(g->protocol);
	__builtin_memset(p, 0, sizeof(*p));
	next = parse_ip(ctx, p, ETH_HLEN + outer, protocol, length - outer);
	if (next < 0)
		return -FERRY_R_INNER_BAD;
	if (ce) {
		int r = ce_in(ctx, ETH_HLEN + outer, p);

		if (r)
			return r;
	}
	return next;
}

/* Takes the outer headers off. 0 or minus a reason. */
static __always_inline int tunnel_strip(struct xdp_md *ctx, __u32 outer, int v6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 macs0;
	__u32 macs1;

	if (data + ETH_HLEN > end)
		return -FERRY_R_MALFORMED;
	macs0 = *(__u64 *)data;
	macs1 = *(__u32 *)(data + 8);
	if (bpf_xdp_adjust_head(ctx, outer))
		return -FERRY_R_HEADROOM;
	data = (void *)(long)ctx->data, end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > end)
		return -FERRY_R_MALFORMED;
	*(__u64 *)data = macs0;
	*(__u32 *)(data + 8) = macs1;
	*(__u16 *)(data + 12) = v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return 0;
}

struct stamp {
	__u32 epoch;
	__u32 hops;
	__u16 sport; /* network order */
	__u16 protocol; /* of the inner packet, network order */
};

/* UDP and what follows. */
static __always_inline void write_tunnel(void *udp, __u32 length, const struct stamp *s)
{
	void *geneve = udp + sizeof(struct udphdr);
	void *option = geneve + sizeof(struct ferry_geneve);

	*(__u16 *)udp = s->sport;
	*(__u16 *)(udp + 4) = bpf_htons(length);
	*(__u16 *)(geneve + offsetof(struct ferry_geneve, protocol)) = s->protocol;
	*(__u32 *)(option + offsetof(struct ferry_option, epoch)) = bpf_htonl(s->epoch);
	*(__u8 *)(option + offsetof(struct ferry_option, hops)) = s->hops;
}

static __always_inline int write_outer4(void *data, void *end, const struct ferry_template *t,
					const struct packet *p, const struct stamp *s)
{
	const __u64 *from = (const __u64 *)t->header;
	__u16 length = bpf_htons(p->length + FERRY_OUTER4);
	__u16 ds = (__u16)(p->ds & ECN_MASK) << 8;

	if (data + ETH_HLEN + FERRY_OUTER4 > end)
		return -FERRY_R_HEADROOM;
#pragma unroll
	for (int i = 0; i < 8; i++)
		((__u64 *)data)[i] = from[i];
	*(__u32 *)(data + 64) = *(const __u32 *)(t->header + 64);
	*(__u16 *)(data + 68) = *(const __u16 *)(t->header + 68);
	*(__u8 *)(data + 15) = p->ds & ECN_MASK;
	*(__u16 *)(data + 16) = length;
	*(__u16 *)(data + 24) = fold(t->csum + length + ds);
	write_tunnel(data + ETH_HLEN + 20, p->length + FERRY_TUNNEL, s);
	return 0;
}

static __always_inline int write_outer6(void *data, void *end, const struct ferry_template *t,
					const struct packet *p, const struct stamp *s)
{
	const __u64 *from = (const __u64 *)t->header;

	if (data + ETH_HLEN + FERRY_OUTER6 > end)
		return -FERRY_R_HEADROOM;
#pragma unroll
	for (int i = 0; i < 11; i++)
		((__u64 *)data)[i] = from[i];
	*(__u16 *)(data + 88) = *(const __u16 *)(t->header + 88);
	*(__u8 *)(data + 15) = (p->ds & ECN_MASK) << 4;
	*(__u16 *)(data + 18) = bpf_htons(p->length + FERRY_TUNNEL);
	write_tunnel(data + ETH_HLEN + 40, p->length + FERRY_TUNNEL, s);
	return 0;
}

/* Puts the packet behind new outer headers (instead of old ones, where it has some) and sends it
 * out. An XDP action, its reason in *reason. */
static __always_inline int tunnel_send(struct xdp_md *ctx, const struct packet *p, __u32 outer,
				       __u32 hop, const struct stamp *s, __u32 *reason)
{
	struct ferry_nexthop *nh = bpf_map_lookup_elem(&nexthops, &hop);
	__u32 live = nh ? READ_ONCE(nh->live) : 0, added;
	const struct ferry_template *t;
	__s32 excess;
	int v6, r;

	*reason = FERRY_R_UNRESOLVED;
	if (live != 1 && live != 2)
		return XDP_DROP;
	t = &nh->template[live == 2];
	v6 = t->length == ETH_HLEN + FERRY_OUTER6;
	added = v6 ? FERRY_OUTER6 : FERRY_OUTER4;
	*reason = FERRY_R_TOO_BIG;
	if (p->length + added > t->mtu)
		return XDP_DROP;
	*reason = FERRY_R_HEADROOM;
	/* what lies behind the IP packet is Ethernet padding, and stays here */
	excess = bpf_xdp_get_buff_len(ctx) - ETH_HLEN - outer - p->length;
	if (excess > 0 && bpf_xdp_adjust_tail(ctx, -excess))
		return XDP_DROP;
	if (added != outer && bpf_xdp_adjust_head(ctx, (int)outer - (int)added))
		return XDP_DROP;
	if (v6)
		r = write_outer6((void *)(long)ctx->data, (void *)(long)ctx->data_end, t, p, s);
	else
		r = write_outer4((void *)(long)ctx->data, (void *)(long)ctx->data_end, t, p, s);
	if (r)
		return XDP_DROP;
	*reason = FERRY_R_REDIRECT;
	if (t->ifindex == ctx->ingress_ifindex && !(t->flags & FERRY_TEMPLATE_REDIRECT))
		return XDP_TX;
	return bpf_redirect_map(&devices, t->ifindex, XDP_DROP);
}

#endif
