/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table of the agent's (ctl/dataplane/table.h) on plain memory, with a real stash map and a
 * grace() that counts its calls. For the tests of it; open and close in the same test.
 */
#ifndef TABLE_WORLD_H
#define TABLE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <bpf/bpf.h>
#include "dataplane/table.h"

#define STASH_MAX 8

struct world {
	struct table t;
	unsigned int graces;
	int grace_says;
	bool v6;
};

static inline int grace(void *arg)
{
	struct world *w = arg;

	w->graces++;
	return w->grace_says;
}

static inline void world_open(struct world *w, bool v6, uint32_t buckets, uint32_t stash)
{
	memset(w, 0, sizeof(*w));
	w->v6 = v6;
	w->t = (struct table){
		.bucket4 = calloc(buckets, sizeof(struct ferry_bucket4)),
		.bucket6 = calloc(buckets, sizeof(struct ferry_bucket6)),
		.buckets4 = buckets,
		.buckets6 = buckets,
		.seed = 0x5eed5eed12345678,
		.stash = -1,
		.grace = grace,
		.grace_arg = w,
	};
	if (stash) {
		w->t.stash = bpf_map_create(BPF_MAP_TYPE_HASH, "stash",
					    sizeof(struct ferry_flow), 4, stash, NULL);
		assert_true(w->t.stash >= 0);
		w->t.stash_max = stash;
	}
	assert_non_null(w->t.bucket4);
	assert_non_null(w->t.bucket6);
	assert_int_equal(table_init(&w->t), 0);
}

static inline void world_close(struct world *w)
{
	if (w->t.stash >= 0)
		close(w->t.stash);
	free(w->t.bucket4);
	free(w->t.bucket6);
	table_close(&w->t);
}

/* The n-th flow: client address and port differ, TCP and UDP take turns. */
static inline struct ferry_flow flow(const struct world *w, uint32_t n)
{
	struct ferry_flow f = { .sport = n, .dport = 443, .proto = n & 1 ? 17 : 6 };

	if (w->v6) {
		f.saddr[0] = f.daddr[0] = 0x20;
		f.daddr[15] = 1;
	} else {
		f.saddr[10] = f.saddr[11] = f.daddr[10] = f.daddr[11] = 0xff;
		f.daddr[12] = 10;
	}
	memcpy(f.saddr + 12, &n, sizeof(n));
	return f;
}

static inline uint32_t slot_count(const struct world *w)
{
	return (w->v6 ? w->t.buckets6 * FERRY_SLOTS6 : w->t.buckets4 * FERRY_SLOTS4);
}

static inline uint32_t used(const struct world *w)
{
	return w->v6 ? w->t.used6 : w->t.used4;
}

static inline uint64_t *slot_b(const struct world *w, uint32_t bucket, unsigned int slot)
{
	return (uint64_t *)(w->v6 ? &w->t.bucket6[bucket].slot[slot].b :
				    &w->t.bucket4[bucket].slot[slot].b);
}

#endif
