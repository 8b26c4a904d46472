// SPDX-License-Identifier: BSD-2-Clause
/*
 * Flow tables: two choices of bucket, the less loaded one; then the stash, behind the spilled bit
 * of both buckets (set before the stash entry can matter, left set: it costs a lookup, no more).
 * IPv4 and IPv6 differ in the slot's width only; struct place hides that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <bpf/bpf.h>
#include <ferry/hash.h>
#include "table.h"

/* A flow in the words of its family's table. */
struct key {
	__u64 a[4];
	__u64 b; /* without a unit */
	uint32_t bucket[2];
	bool v6;
};

static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

static struct key key_of(const struct table *t, const struct ferry_flow *f)
{
	uint32_t ports = f->sport | (uint32_t)f->dport << 16;
	struct key k = { .v6 = flow_is_v6(f), .b = FERRY_SLOT_B(ports, f->proto, 0) };
	struct ferry_hash h;

	if (k.v6) {
		memcpy(k.a, f->saddr, 16);
		memcpy(k.a + 2, f->daddr, 16);
		h = ferry_hash6(t->seed, k.a, ports, f->proto);
	} else {
		memcpy(k.a, f->saddr + 12, 4);
		memcpy((char *)k.a + 4, f->daddr + 12, 4);
		h = ferry_hash4(t->seed, k.a[0], ports, f->proto);
	}
	k.bucket[0] = h.first & ((k.v6 ? t->buckets6 : t->buckets4) - 1);
	k.bucket[1] = h.second & ((k.v6 ? t->buckets6 : t->buckets4) - 1);
	return k;
}

static unsigned int slots(bool v6)
{
	return v6 ? FERRY_SLOTS6 : FERRY_SLOTS4;
}

static __u64 *word_b(const struct table *t, bool v6, uint32_t bucket, unsigned int slot)
{
	return (__u64 *)(v6 ? &t->bucket6[bucket].slot[slot].b : &t->bucket4[bucket].slot[slot].b);
}

static __u64 *words_a(const struct table *t, bool v6, uint32_t bucket, unsigned int slot)
{
	return (__u64 *)(v6 ? t->bucket6[bucket].slot[slot].a : &t->bucket4[bucket].slot[slot].a);
}

static uint8_t *freed(const struct table *t, bool v6, uint32_t bucket)
{
	return v6 ? &t->freed6[bucket] : &t->freed4[bucket];
}

static bool empty(uint64_t b)
{
	return !(b & ~FERRY_SLOT_SPILLED);
}

static unsigned int load(const struct table *t, bool v6, uint32_t bucket)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < slots(v6); i++)
		n += !empty(*word_b(t, v6, bucket, i));
	return n;
}

static uint32_t count_used(const struct table *t, bool v6)
{
	uint32_t n = 0, buckets = v6 ? t->buckets6 : t->buckets4;

	for (uint32_t i = 0; i < buckets; i++)
		n += load(t, v6, i);
	return n;
}

static uint32_t stash_count(int fd)
{
	struct ferry_flow key, next;
	uint32_t n = 0;

	if (fd < 0)
		return 0;
	for (int r = bpf_map_get_next_key(fd, NULL, &next); !r;
	     r = bpf_map_get_next_key(fd, &key, &next)) {
		key = next;
		n++;
	}
	return n;
}

int table_init(struct table *t)
{
	t->freed4 = calloc(t->buckets4, 1);
	t->freed6 = calloc(t->buckets6, 1);
	if (!t->freed4 || !t->freed6) {
		table_close(t);
		return -ENOMEM;
	}
	t->used4 = count_used(t, false);
	t->used6 = count_used(t, true);
	t->stash_used = stash_count(t->stash);
	t->any_freed = false;
	return 0;
}

void table_close(struct table *t)
{
	free(t->freed4);
	free(t->freed6);
	t->freed4 = t->freed6 = NULL;
}

static bool find_slot(const struct table *t, const struct key *k, uint32_t *bucket,
		      unsigned int *slot)
{
	for (int i = 0; i < 2; i++) {
		for (unsigned int s = 0; s < slots(k->v6); s++) {
			if ((*word_b(t, k->v6, k->bucket[i], s) & FERRY_SLOT_KEY) != k->b ||
			    memcmp(words_a(t, k->v6, k->bucket[i], s), k->a, k->v6 ? 32 : 8))
				continue;
			*bucket = k->bucket[i];
			*slot = s;
			return true;
		}
	}
	return false;
}

int table_settle(struct table *t)
{
	int r;

	if (!t->any_freed)
		return 0;
	r = t->grace ? t->grace(t->grace_arg) : 0;
	if (r)
		return r;
	memset(t->freed4, 0, t->buckets4);
	memset(t->freed6, 0, t->buckets6);
	t->any_freed = false;
	return 0;
}

/* An empty slot that no reader can still be looking at. 0; -EAGAIN: only freed ones, which a grace
 * period would give; -ENOENT. */
static int free_slot(const struct table *t, bool v6, uint32_t bucket, unsigned int *slot)
{
	int r = -ENOENT;

	for (unsigned int s = 0; s < slots(v6); s++) {
		if (!empty(*word_b(t, v6, bucket, s)))
			continue;
		if (!(*freed(t, v6, bucket) & 1U << s)) {
			*slot = s;
			return 0;
		}
		r = -EAGAIN;
	}
	return r;
}

static void publish(struct table *t, const struct key *k, uint32_t bucket, unsigned int slot,
		    uint32_t unit)
{
	__u64 *a = words_a(t, k->v6, bucket, slot), *b = word_b(t, k->v6, bucket, slot);

	for (int i = 0; i < (k->v6 ? 4 : 1); i++)
		__atomic_store_n(&a[i], k->a[i], __ATOMIC_RELAXED);
	__atomic_store_n(b, k->b | (uint64_t)unit << 40 | (*b & FERRY_SLOT_SPILLED),
			 __ATOMIC_RELEASE);
	*(k->v6 ? &t->used6 : &t->used4) += 1;
}

static int stash_insert(struct table *t, const struct key *k, const struct ferry_flow *f,
			uint32_t unit)
{
	if (t->stash < 0 || t->stash_used >= t->stash_max)
		return -ENOSPC;
	if (bpf_map_update_elem(t->stash, f, &unit, BPF_NOEXIST))
		return -errno;
	t->stash_used++;
	for (int i = 0; i < 2; i++) {
		__u64 *b = word_b(t, k->v6, k->bucket[i], 0);

		__atomic_store_n(b, *b | FERRY_SLOT_SPILLED, __ATOMIC_RELEASE);
	}
	return 0;
}

uint32_t table_room(const struct table *t, bool v6)
{
	uint64_t slots_all = (uint64_t)(v6 ? t->buckets6 : t->buckets4) * slots(v6);
	uint64_t limit = slots_all * TABLE_FULL_PERCENT / 100, used = v6 ? t->used6 : t->used4;

	return limit > used ? (uint32_t)(limit - used) : 0;
}

/* Into the less loaded of its buckets, or the other. As free_slot(). */
static int place(struct table *t, const struct key *k, uint32_t unit)
{
	uint32_t first = load(t, k->v6, k->bucket[1]) < load(t, k->v6, k->bucket[0]);
	bool waiting = false;

	for (int i = 0; i < 2; i++) {
		uint32_t bucket = k->bucket[first ^ i];
		unsigned int slot;
		int r = free_slot(t, k->v6, bucket, &slot);

		if (!r) {
			publish(t, k, bucket, slot, unit);
			return 0;
		}
		waiting |= r == -EAGAIN;
	}
	return waiting ? -EAGAIN : -ENOENT;
}

int table_insert(struct table *t, const struct ferry_flow *f, uint32_t unit)
{
	struct key k = key_of(t, f);
	int r;

	if (!unit || unit >= 1U << FERRY_UNIT_BITS ||
	    (f->proto != IPPROTO_TCP && f->proto != IPPROTO_UDP))
		return -EINVAL;
	if (table_find(t, f))
		return -EEXIST;
	if (!table_room(t, k.v6))
		return -ENOSPC;
	r = place(t, &k, unit);
	if (r == -EAGAIN) {
		r = table_settle(t);
		r = r ? r : place(t, &k, unit);
	}
	return r == -ENOENT ? stash_insert(t, &k, f, unit) : r;
}

int table_delete(struct table *t, const struct ferry_flow *f)
{
	struct key k = key_of(t, f);
	unsigned int slot;
	uint32_t bucket;

	if (find_slot(t, &k, &bucket, &slot)) {
		__u64 *b = word_b(t, k.v6, bucket, slot);

		__atomic_store_n(b, *b & FERRY_SLOT_SPILLED, __ATOMIC_RELEASE);
		*freed(t, k.v6, bucket) |= 1U << slot;
		t->any_freed = true;
		*(k.v6 ? &t->used6 : &t->used4) -= 1;
		return 0;
	}
	if (t->stash >= 0 && !bpf_map_delete_elem(t->stash, f)) {
		t->stash_used--;
		return 0;
	}
	return -ENOENT;
}

uint32_t table_find(const struct table *t, const struct ferry_flow *f)
{
	struct key k = key_of(t, f);
	uint32_t bucket, unit = 0;
	unsigned int slot;

	if (find_slot(t, &k, &bucket, &slot))
		return FERRY_SLOT_UNIT(*word_b(t, k.v6, bucket, slot));
	if (t->stash >= 0 && t->stash_used && bpf_map_lookup_elem(t->stash, f, &unit))
		return 0;
	return unit;
}

static struct ferry_flow flow_of(const __u64 *a, uint64_t b, bool v6)
{
	struct ferry_flow f = { .sport = b, .dport = b >> 16, .proto = b >> 32 & 0x7f };

	if (v6) {
		memcpy(f.saddr, a, 16);
		memcpy(f.daddr, a + 2, 16);
	} else {
		memcpy(f.saddr, mapped, 12);
		memcpy(f.daddr, mapped, 12);
		memcpy(f.saddr + 12, a, 4);
		memcpy(f.daddr + 12, (const char *)a + 4, 4);
	}
	return f;
}

static int walk_buckets(const struct table *t, bool v6, table_visit visit, void *arg)
{
	uint32_t buckets = v6 ? t->buckets6 : t->buckets4;

	for (uint32_t i = 0; i < buckets; i++) {
		for (unsigned int s = 0; s < slots(v6); s++) {
			uint64_t b = __atomic_load_n(word_b(t, v6, i, s), __ATOMIC_ACQUIRE);
			struct ferry_flow f;
			int r;

			if (empty(b))
				continue;
			f = flow_of(words_a(t, v6, i, s), b, v6);
			r = visit(&f, FERRY_SLOT_UNIT(b), arg);
			if (r)
				return r;
		}
	}
	return 0;
}

int table_walk(const struct table *t, table_visit visit, void *arg)
{
	struct ferry_flow key, next;
	uint32_t unit;
	int r = walk_buckets(t, false, visit, arg);

	if (!r)
		r = walk_buckets(t, true, visit, arg);
	if (r || t->stash < 0)
		return r;
	for (int end = bpf_map_get_next_key(t->stash, NULL, &next); !end && !r;
	     end = bpf_map_get_next_key(t->stash, &key, &next)) {
		key = next;
		if (!bpf_map_lookup_elem(t->stash, &key, &unit))
			r = visit(&key, unit, arg);
	}
	return r;
}
