/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The writer's side of the flow tables (bpf/flow.h is the reader's): insert, delete, find and walk
 * over the mmapped buckets and the stash. Knows no unit's state.
 * Invariant: one writer; an entry is never displaced, and a slot that was freed is filled again
 * only after a grace period, so that a lockless reader never sees half of two entries.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <ferry/map.h>

#define TABLE_FULL_PERCENT 60

struct table {
	struct ferry_bucket4 *bucket4;
	struct ferry_bucket6 *bucket6;
	uint32_t buckets4, buckets6; /* powers of two */
	uint64_t seed;
	int stash; /* map descriptor, -1: none */
	uint32_t stash_max, stash_used;
	uint32_t used4, used6; /* slots */
	uint8_t *freed4, *freed6; /* per bucket: slots freed since the last grace period */
	bool any_freed;
	/* Returns 0 when every reader that was running has left. */
	int (*grace)(void *arg);
	void *grace_arg;
};

typedef int (*table_visit)(const struct ferry_flow *flow, uint32_t unit, void *arg);

/* Takes the mapped buckets as they are; counts what is in them. All fields but freed, used and
 * any_freed are set by the caller. 0 or -ENOMEM. */
int table_init(struct table *t);
void table_close(struct table *t);
/* 0; -EEXIST, -ENOSPC (60 % of the slots used, or both buckets and the stash full), -EINVAL (not
 * TCP or UDP, a unit of 0), or what grace() or the stash said. */
int table_insert(struct table *t, const struct ferry_flow *flow, uint32_t unit);
/* Waits for a grace period where something was freed since the last, so that the next insertions
 * need none. 0 or what grace() said. */
int table_settle(struct table *t);
/* How many more flows of a family are let in; a full bucket may still refuse one of them. */
uint32_t table_room(const struct table *t, bool v6);
/* 0 or -ENOENT. */
int table_delete(struct table *t, const struct ferry_flow *flow);
/* The unit of exactly this flow, 0 none. */
uint32_t table_find(const struct table *t, const struct ferry_flow *flow);
/* Every entry; stops at the first non-zero answer and returns it. */
int table_walk(const struct table *t, table_visit visit, void *arg);

static inline bool flow_is_v6(const struct ferry_flow *f)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	return __builtin_memcmp(f->daddr, mapped, sizeof(mapped)) != 0;
}

#endif
