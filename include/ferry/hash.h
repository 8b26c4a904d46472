/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow tables' keyed hash, the same in the datapath and in the agent: Bob Jenkins' lookup3
 * (public domain, 2006), 64 bits of it, so that one pass gives both choices of bucket. The seed is
 * the node's own, so that a client cannot choose whom it collides with.
 */
#ifndef FERRY_HASH_H
#define FERRY_HASH_H

#include <linux/types.h>

struct ferry_hash {
	__u32 first; /* of the two choices; also the outer source port's entropy */
	__u32 second;
};

#define FERRY_ROL(x, k) ((x) << (k) | (x) >> (32 - (k)))

static inline __attribute__((always_inline)) void ferry_mix(__u32 *a, __u32 *b, __u32 *c)
{
	*a -= *c, *a ^= FERRY_ROL(*c, 4), *c += *b;
	*b -= *a, *b ^= FERRY_ROL(*a, 6), *a += *c;
	*c -= *b, *c ^= FERRY_ROL(*b, 8), *b += *a;
	*a -= *c, *a ^= FERRY_ROL(*c, 16), *c += *b;
	*b -= *a, *b ^= FERRY_ROL(*a, 19), *a += *c;
	*c -= *b, *c ^= FERRY_ROL(*b, 4), *b += *a;
}

static inline __attribute__((always_inline)) struct ferry_hash ferry_final(__u32 a, __u32 b,
									   __u32 c)
{
	c ^= b, c -= FERRY_ROL(b, 14);
	a ^= c, a -= FERRY_ROL(c, 11);
	b ^= a, b -= FERRY_ROL(a, 25);
	c ^= b, c -= FERRY_ROL(b, 16);
	a ^= c, a -= FERRY_ROL(c, 4);
	b ^= a, b -= FERRY_ROL(a, 14);
	c ^= b, c -= FERRY_ROL(b, 24);
	return (struct ferry_hash){ c, b };
}

/* addr: source and destination as in a slot's word A; ports as in its word B. */
static inline __attribute__((always_inline)) struct ferry_hash
ferry_hash4(__u64 seed, __u64 addr, __u32 ports, __u8 proto)
{
	__u32 a = (__u32)seed + (__u32)addr, b = (__u32)(seed >> 32) + (__u32)(addr >> 32);
	__u32 c = (__u32)seed + ports;

	ferry_mix(&a, &b, &c);
	return ferry_final(a + proto, b, c);
}

static inline __attribute__((always_inline)) struct ferry_hash
ferry_hash6(__u64 seed, const __u64 addr[4], __u32 ports, __u8 proto)
{
	__u32 a = (__u32)seed, b = (__u32)(seed >> 32), c = (__u32)seed + ports;

	a += (__u32)addr[0], b += (__u32)(addr[0] >> 32), c += (__u32)addr[1];
	ferry_mix(&a, &b, &c);
	a += (__u32)(addr[1] >> 32), b += (__u32)addr[2], c += (__u32)(addr[2] >> 32);
	ferry_mix(&a, &b, &c);
	return ferry_final(a + (__u32)addr[3], b + (__u32)(addr[3] >> 32), c + proto);
}

#endif
