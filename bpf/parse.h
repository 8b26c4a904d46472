/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Header parsers: parse_<header>(cursor, ...) checks bounds, advances the cursor and returns the
 * next protocol, or minus a reason. They know no maps. The packet is parsed once, into struct
 * packet; what comes later takes that and touches no header. Rare headers and the whole of IP are
 * functions that the verifier looks at once, whoever calls them.
 * Invariant: a port is never read from a fragment, nor past the length that the IP header gives.
 */
#ifndef PARSE_H
#define PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <ferry/reason.h>
#include "ctx.h"

/* As the receiver sees it, in the words of a flow slot. IPv4 uses addr[0] only. */
struct tuple {
	__u64 addr[4];
	__u32 ports;
	__u8 proto;
	__u8 v6;
	__u16 pad;
};

struct packet {
	struct tuple t;
	__u32 length; /* of the IP packet, header included */
	__u32 l4;     /* offset of the L4 header in the frame */
	__u8 icmp;    /* an ICMP error: t is what it quotes, reversed */
	__u8 ds;      /* DS field, ECN in the low two bits */
	__u8 ttl;
	__u8 pad;
};

#define ECN_MASK 3
#define ECN_CE 3
#define IPV6_EXT_MAX 6

/* Not linux/ip.h: these are read in words. */
struct ipv4 {
	__u8 ver_ihl;
	__u8 ds;
	__u16 length;
	__u16 id;
	__u16 frag;
	__u8 ttl;
	__u8 proto;
	__u16 csum;
	__u32 addr[2];
};
struct ipv6 {
	__u32 ver_tc_label;
	__u16 payload;
	__u8 next;
	__u8 hops;
	__u32 addr[8];
};
struct ipv6_ext {
	__u8 next;
	__u8 length;
	__u16 pad[3];
};
struct l4 {
	__u32 ports; /* source, destination */
	__u32 rest;
};

static __always_inline __u64 pair(__u32 low, __u32 high)
{
	return low | (__u64)high << 32;
}

struct cursor {
	const ctx_t *ctx;
	__u32 offset;
};

/* The header here, and the cursor behind it; NULL where the frame ends before. */
static __always_inline void *take(struct cursor *c, __u32 size)
{
	void *at = ctx_at(c->ctx, c->offset, size);

	c->offset += size;
	return at;
}

static __always_inline int parse_eth(struct cursor *c)
{
	struct ethhdr *eth = take(c, sizeof(*eth));

	if (!eth)
		return -FERRY_R_MALFORMED;
	if (eth->h_proto == bpf_htons(ETH_P_8021Q) || eth->h_proto == bpf_htons(ETH_P_8021AD))
		return -FERRY_R_VLAN;
	return bpf_ntohs(eth->h_proto);
}

/* A packet that ends before the first 8 octets of L4: cut short, if there should be ports. */
static __always_inline int too_short(int next)
{
	if (next == IPPROTO_TCP || next == IPPROTO_UDP || next == IPPROTO_ICMP ||
	    next == IPPROTO_ICMPV6)
		return -FERRY_R_MALFORMED;
	return -FERRY_R_OTHER_PROTO;
}

/* space: octets from here to the frame's end, beyond the linear part too; or ANY_LENGTH for what
 * this host is about to send: a length field of 0 is then a GSO packet's that is longer than the
 * field can say (BIG TCP; net/ipv4/ip_output.c, iph_set_totlen()). */
#define ANY_LENGTH 0x1ffff
static __always_inline int parse_ipv4(struct cursor *c, struct packet *p, __u32 space)
{
	struct ipv4 *ip = take(c, sizeof(*ip));
	__u32 ihl;

	if (!ip)
		return -FERRY_R_MALFORMED;
	ihl = (ip->ver_ihl & 0xf) * 4;
	p->length = bpf_ntohs(ip->length);
	if (!p->length && space == ANY_LENGTH)
		p->length = ANY_LENGTH;
	if (ip->ver_ihl >> 4 != 4 || ihl < sizeof(*ip) || p->length < ihl || p->length > space)
		return -FERRY_R_MALFORMED;
	p->t.addr[0] = pair(ip->addr[0], ip->addr[1]);
	p->t.v6 = 0;
	p->ds = ip->ds;
	p->ttl = ip->ttl;
	c->offset += ihl - sizeof(*ip);
	if (ip->frag & bpf_htons(0x3fff)) /* MF or an offset */
		return -FERRY_R_FRAGMENT;
	if (p->length < ihl + sizeof(struct l4))
		return too_short(ip->proto);
	return ip->proto;
}

static __always_inline int is_ext(__u32 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_AH;
}

/* From the extension header at offset to what is behind the last: its protocol in the low octet,
 * its offset above; or minus a reason. */
__noinline int walk_ext(ctx_t *ctx, __u32 offset, __u32 next)
{
	struct cursor c = { ctx, offset };

	for (int i = 0; i < IPV6_EXT_MAX; i++) {
		struct ipv6_ext *ext;

		if (!is_ext(next))
			return (next & 0xff) | c.offset << 8;
		ext = take(&c, sizeof(*ext));
		if (!ext)
			return -FERRY_R_MALFORMED;
		/* AH counts words of 4 octets less 2 (RFC 4302), the others of 8 less 1 */
		if (next == IPPROTO_AH)
			c.offset += (ext->length + 2) * 4 - sizeof(*ext);
		else
			c.offset += ext->length * 8;
		next = ext->next;
	}
	return is_ext(next) ? -FERRY_R_EXT_HEADERS : (int)((next & 0xff) | c.offset << 8);
}

static __always_inline int parse_ipv6(struct cursor *c, struct packet *p, __u32 space)
{
	__u32 start = c->offset;
	struct ipv6 *ip = take(c, sizeof(*ip));
	int next;

	if (!ip)
		return -FERRY_R_MALFORMED;
	p->length = bpf_ntohs(ip->payload) + sizeof(*ip);
	if (!ip->payload && space == ANY_LENGTH)
		p->length = ANY_LENGTH;
	if ((bpf_ntohl(ip->ver_tc_label) >> 28) != 6 || p->length > space)
		return -FERRY_R_MALFORMED;
#pragma unroll
	for (int i = 0; i < 4; i++)
		p->t.addr[i] = pair(ip->addr[2 * i], ip->addr[2 * i + 1]);
	p->t.v6 = 1;
	p->ds = bpf_ntohl(ip->ver_tc_label) >> 20;
	p->ttl = ip->hops;
	next = ip->next;
	if (is_ext(next)) {
		next = walk_ext((ctx_t *)c->ctx, c->offset, next);
		if (next < 0)
			return next;
		c->offset = (__u32)next >> 8;
		next &= 0xff;
	}
	if (next == IPPROTO_FRAGMENT)
		return -FERRY_R_FRAGMENT;
	if (p->length < c->offset - start) /* an extension header says that it goes on */
		return -FERRY_R_MALFORMED;
	if (p->length < c->offset - start + sizeof(struct l4))
		return too_short(next);
	return next;
}

/* Turns what a packet's sender saw into what its receiver sees, and back. */
static __always_inline void tuple_reverse(struct tuple *t)
{
	__u64 a0 = t->addr[0], a1 = t->addr[1];

	t->ports = t->ports << 16 | t->ports >> 16;
	if (!t->v6) {
		t->addr[0] = a0 << 32 | a0 >> 32;
		return;
	}
	t->addr[0] = t->addr[2];
	t->addr[1] = t->addr[3];
	t->addr[2] = a0;
	t->addr[3] = a1;
}

static __always_inline int parse_ports(struct cursor *c, struct packet *p, int proto)
{
	struct l4 *l4;

	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return -FERRY_R_OTHER_PROTO;
	l4 = take(c, sizeof(*l4));
	if (!l4)
		return -FERRY_R_MALFORMED;
	p->t.ports = l4->ports;
	p->t.proto = proto;
	return proto;
}

/* An ICMP error, from offset to end, quotes a packet of ours: 8 octets behind its IP header are
 * enough (RFC 792). p->t becomes what the answer to that packet would be. */
__noinline int parse_icmp(ctx_t *ctx, struct packet *p, __u32 offset, __u32 end, int proto)
{
	struct cursor c = { ctx, offset };
	struct l4 *icmp = take(&c, sizeof(*icmp));
	struct packet quoted = {};
	__u8 type;
	int next;

	if (!p || !icmp)
		return -FERRY_R_MALFORMED;
	type = icmp->ports & 0xff;
	/* quotes are cut short: their length field says nothing about this frame */
	if (proto == IPPROTO_ICMP && (type == 3 || type == 11 || type == 12))
		next = parse_ipv4(&c, &quoted, 0xffff);
	else if (proto == IPPROTO_ICMPV6 && type >= 1 && type <= 4)
		next = parse_ipv6(&c, &quoted, 0xffff + sizeof(struct ipv6));
	else
		return -FERRY_R_OTHER_PROTO;
	if (next >= 0)
		next = parse_ports(&c, &quoted, next);
	if (next < 0)
		return next;
	if (c.offset > end) /* what follows the IP packet is not quoted */
		return -FERRY_R_MALFORMED;
	tuple_reverse(&quoted.t);
	p->t = quoted.t;
	p->icmp = 1;
	return next;
}

/*
 * The IP packet at offset, of which the frame holds space octets. TCP or UDP (of the quoted packet
 * where p->icmp), or minus a reason. p->l4 is then the offset of the L4 header.
 */
__noinline int parse_ip(ctx_t *ctx, struct packet *p, __u32 offset, __u32 ethertype, __u32 space)
{
	struct cursor c = { ctx, offset };
	int proto;

	if (!p)
		return -FERRY_R_MALFORMED;
	if (ethertype == ETH_P_IP)
		proto = parse_ipv4(&c, p, space);
	else if (ethertype == ETH_P_IPV6)
		proto = parse_ipv6(&c, p, space);
	else
		return -FERRY_R_NOT_IP;
	p->l4 = c.offset;
	if (proto == (ethertype == ETH_P_IP ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return parse_icmp(ctx, p, c.offset, offset + p->length, proto);
	return proto < 0 ? proto : parse_ports(&c, p, proto);
}

#endif
