/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tuple -> unit: two buckets by a keyed hash, then the stash where one of them spilled. Readers
 * take no lock: they read ports, addresses, ports, and a freed slot is reused only after a grace
 * period, so that what matched is one entry, never half of two.
 */
#ifndef FLOW_H
#define FLOW_H

#include <ferry/hash.h>
#include "maps.h"
#include "parse.h"

/* Both reads of B saw the same entry; the spilled bit may have been set between them. */
static __always_inline int slot_same(__u64 b, __u64 again)
{
	return !((b ^ again) & ~FERRY_SLOT_SPILLED);
}

static __always_inline __u32 bucket_find4(const struct ferry_bucket4 *k, const struct tuple *t,
					  __u64 want)
{
#pragma unroll
	for (int i = 0; i < FERRY_SLOTS4; i++) {
		__u64 b = READ_ONCE(k->slot[i].b);

		if ((b & FERRY_SLOT_KEY) == want && READ_ONCE(k->slot[i].a) == t->addr[0] &&
		    slot_same(b, READ_ONCE(k->slot[i].b)))
			return FERRY_SLOT_UNIT(b);
	}
	return 0;
}

static __always_inline __u32 bucket_find6(const struct ferry_bucket6 *k, const struct tuple *t,
					  __u64 want)
{
#pragma unroll
	for (int i = 0; i < FERRY_SLOTS6; i++) {
		const struct ferry_slot6 *s = &k->slot[i];
		__u64 b = READ_ONCE(s->b);

		if ((b & FERRY_SLOT_KEY) == want && READ_ONCE(s->a[0]) == t->addr[0] &&
		    READ_ONCE(s->a[1]) == t->addr[1] && READ_ONCE(s->a[2]) == t->addr[2] &&
		    READ_ONCE(s->a[3]) == t->addr[3] && slot_same(b, READ_ONCE(s->b)))
			return FERRY_SLOT_UNIT(b);
	}
	return 0;
}

/* addr: 16 octets; a v4-mapped address for IPv4 (RFC 4291 section 2.5.5.2). */
static __always_inline void addr_store(__u8 *addr, const struct tuple *t, int destination)
{
	__u64 *to = (__u64 *)addr;

	if (t->v6) {
		to[0] = t->addr[destination ? 2 : 0];
		to[1] = t->addr[destination ? 3 : 1];
	} else {
		to[0] = 0;
		to[1] = pair(bpf_htonl(0xffff), t->addr[0] >> (destination ? 32 : 0));
	}
}

__noinline __u32 stash_find(const struct tuple *t)
{
	struct ferry_flow key = {};
	__u32 *unit;

	if (!t)
		return 0;
	addr_store(key.saddr, t, 0);
	addr_store(key.daddr, t, 1);
	key.sport = t->ports;
	key.dport = t->ports >> 16;
	key.proto = t->proto;
	unit = bpf_map_lookup_elem(&stash, &key);
	return unit ? *unit : 0;
}

__noinline __u32 find4(const struct tuple *t, __u32 first, __u32 second)
{
	__u32 index[2] = { first & cfg_mask4, second & cfg_mask4 };
	__u64 want, spilled = 0;

	if (!t)
		return 0;
	want = FERRY_SLOT_B(t->ports, t->proto, 0);

#pragma unroll
	for (int i = 0; i < 2; i++) {
		struct ferry_bucket4 *k = bpf_map_lookup_elem(&flows4, &index[i]);
		__u32 unit;

		if (!k)
			return 0;
		unit = bucket_find4(k, t, want);
		if (unit)
			return unit;
		spilled |= READ_ONCE(k->slot[0].b);
	}
	return spilled & FERRY_SLOT_SPILLED ? stash_find(t) : 0;
}

__noinline __u32 find6(const struct tuple *t, __u32 first, __u32 second)
{
	__u32 index[2] = { first & cfg_mask6, second & cfg_mask6 };
	__u64 want, spilled = 0;

	if (!t)
		return 0;
	want = FERRY_SLOT_B(t->ports, t->proto, 0);

#pragma unroll
	for (int i = 0; i < 2; i++) {
		struct ferry_bucket6 *k = bpf_map_lookup_elem(&flows6, &index[i]);
		__u32 unit;

		if (!k)
			return 0;
		unit = bucket_find6(k, t, want);
		if (unit)
			return unit;
		spilled |= READ_ONCE(k->slot[0].b);
	}
	return spilled & FERRY_SLOT_SPILLED ? stash_find(t) : 0;
}

static __always_inline struct ferry_hash flow_hash(const struct tuple *t)
{
	return t->v6 ? ferry_hash6(cfg_seed, t->addr, t->ports, t->proto) :
		       ferry_hash4(cfg_seed, t->addr[0], t->ports, t->proto);
}

static __always_inline __u32 flow_find_exact(const struct tuple *t, struct ferry_hash h)
{
	return t->v6 ? find6(t, h.first, h.second) : find4(t, h.first, h.second);
}

/* A bound UDP port: any remote, kept as the flow with remote address and port 0. */
static __always_inline __u32 flow_find_bound(const struct tuple *t)
{
	struct tuple bound = *t;

	bound.ports &= bpf_htonl(0x0000ffff);
	if (t->v6)
		bound.addr[0] = bound.addr[1] = 0;
	else
		bound.addr[0] &= 0xffffffff00000000ULL;
	return flow_find_exact(&bound, flow_hash(&bound));
}

/* The unit that owns the tuple, 0 none. h: flow_hash(t). */
static __always_inline __u32 flow_find(const struct tuple *t, struct ferry_hash h)
{
	__u32 unit = flow_find_exact(t, h);

	return unit || t->proto != IPPROTO_UDP ? unit : flow_find_bound(t);
}

#endif
