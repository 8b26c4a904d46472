// SPDX-License-Identifier: GPL-2.0-only
/*
 * steer: which node owns this packet's flow, on every node, on every device it comes in by.
 *
 *   parse -> out of the tunnel -> flow table -> unit word -> act
 *                              -> else service -> its node
 *                              -> else pass, bit for bit as it came
 *
 * It creates no state; the agent writes the tables. Every way out counts exactly one reason.
 */
#define CTX_XDP
#include "maps.h"
#include "parse.h"
#include "flow.h"
#include "verdict.h"
#include "tunnel.h"

/* TCP or UDP, or minus a reason; t->outer says whether it came in the tunnel. */
static __always_inline int classify(struct xdp_md *ctx, struct packet *p, struct tunnel *t)
{
	struct cursor c = { ctx, 0 };
	int type = parse_eth(&c), next;

	if (type < 0)
		return type;
	next = parse_ip(ctx, p, c.offset, type, bpf_xdp_get_buff_len(ctx) - c.offset);
	if (next != IPPROTO_UDP || p->icmp || p->t.ports >> 16 != bpf_htons(FERRY_GENEVE_PORT) ||
	    !to_self(&p->t))
		return next;
	return parse_tunnel(ctx, p, t);
}

/* Came from a node: what cannot be placed is dropped. Came as it is: it is not ours to drop. */
static __always_inline int leave(int reason)
{
	count(reason);
	switch (reason) {
	case FERRY_R_ENCAP_UNKNOWN_PEER:
	case FERRY_R_GENEVE_BAD:
	case FERRY_R_ENCAP_TAG:
	case FERRY_R_INNER_BAD:
	case FERRY_R_ECN_ILLEGAL:
		return XDP_DROP;
	}
	return XDP_PASS;
}

static __always_inline int deliver(struct xdp_md *ctx, const struct packet *p,
				   const struct tunnel *t, __u32 reason)
{
	if (t->outer) {
		int r = tunnel_strip(ctx, t->outer, p->t.v6);

		if (r) {
			count(-r);
			return XDP_DROP;
		}
	}
	count(reason);
	return XDP_PASS;
}

static __always_inline int send(struct xdp_md *ctx, const struct packet *p, const struct tunnel *t,
				__u32 hash, __u32 hop, __u32 epoch, __u32 reason)
{
	struct stamp s = {
		.epoch = epoch,
		.hops = t->hops + 1,
		/* RFC 8926 section 3.3: entropy, from the dynamic range */
		.sport = bpf_htons(0xc000 | (hash & 0x3fff)),
		.protocol = p->t.v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP),
	};
	__u32 failed;
	int action;

	if (t->hops >= FERRY_HOPS_MAX) {
		count(FERRY_R_HOPS);
		return XDP_DROP;
	}
	if (p->ttl <= 1) {
		count(FERRY_R_TTL);
		return t->outer ? XDP_DROP : XDP_PASS;
	}
	action = tunnel_send(ctx, p, t->outer, hop, &s, &failed);
	count(action == XDP_DROP ? failed : reason);
	return action;
}

/* What the word's owner has to learn from this packet. */
static __always_inline void tell(__u32 unit, __u64 *word, __u64 seen, __u32 claim,
				 const struct verdict *v)
{
	struct ferry_record *r;

	if (v->raise) /* only where nobody changed it meanwhile */
		__sync_val_compare_and_swap(word, seen,
					    FERRY_WORD(claim, FERRY_LOCAL, FERRY_WORD_HOP(seen)));
	if (!v->park && !v->newer)
		return;
	r = bpf_map_lookup_elem(&records, &unit);
	if (!r)
		return;
	if (v->park)
		__sync_fetch_and_add(&r->lost, 1);
	if (v->newer && !v->raise && (!r->newer || FERRY_NEWER(claim, r->newer)))
		r->newer = claim;
}

static __always_inline int act_on_unit(struct xdp_md *ctx, const struct packet *p,
				       const struct tunnel *t, __u32 hash, __u32 unit)
{
	__u64 *word = bpf_map_lookup_elem(&words, &unit), seen;
	struct verdict v;

	if (!word)
		return leave(FERRY_R_FREE_UNIT);
	seen = READ_ONCE(*word);
	if (!cfg_fence_in && FERRY_WORD_STATE(seen) == FERRY_FENCED)
		seen = FERRY_WORD(FERRY_WORD_EPOCH(seen), FERRY_LOCAL, 0);
	v = decide(seen, t->epoch, p->t.proto, p->icmp);
	if (v.note)
		count(v.note);
	if (v.park || v.newer)
		tell(unit, word, seen, t->epoch, &v);
	if (v.action == ACT_DELIVER)
		return deliver(ctx, p, t, v.reason);
	if (v.action == ACT_SEND)
		return send(ctx, p, t, hash, v.hop, v.epoch, v.reason);
	count(v.reason);
	return XDP_DROP;
}

static __always_inline int act_on_service(struct xdp_md *ctx, const struct packet *p,
					  const struct tunnel *t, __u32 hash)
{
	struct ferry_service_key key = { .port = p->t.ports >> 16, .proto = p->t.proto };
	const struct ferry_service *s;

	addr_store(key.addr, &p->t, 1);
	s = bpf_map_lookup_elem(&services, &key);
	if (!s)
		return leave(FERRY_R_FOREIGN);
	if (s->hop == cfg_node)
		return leave(FERRY_R_SERVICE_LOCAL);
	return send(ctx, p, t, hash, s->hop, 0, FERRY_R_SERVICE);
}

SEC("xdp.frags")
int ferry_steer(struct xdp_md *ctx)
{
	struct packet p = {};
	struct tunnel t = {};
	int next = classify(ctx, &p, &t);
	struct ferry_hash h;
	__u32 unit;

	if (next < 0)
		return leave(-next);
	if (p.icmp)
		count(FERRY_R_ICMP);
	h = flow_hash(&p.t);
	unit = flow_find(&p.t, h);
	if (unit)
		return act_on_unit(ctx, &p, &t, h.first, unit);
	if (t.outer)
		return deliver(ctx, &p, &t, FERRY_R_LOCAL_UNKNOWN);
	return act_on_service(ctx, &p, &t, h.first);
}

char LICENSE[] SEC("license") = "GPL";
