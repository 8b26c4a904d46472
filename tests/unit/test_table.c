// SPDX-License-Identifier: BSD-2-Clause
/*
 * The writer of the flow tables (ctl/dataplane/table.c) on plain memory and a real stash map:
 * single steps first, then 10^5 random operations beside a plain array. Every test runs for IPv4
 * and IPv6.
 * Invariant watched all along: a slot that was freed holds nothing new before grace() has run.
 */
#include <errno.h>
#include <stddef.h>
#include "table_world.h"

struct seen {
	const struct world *w;
	uint32_t *unit; /* of flow n, taken away as it is seen */
	uint32_t n, found, stop_after;
};

static int visit(const struct ferry_flow *f, uint32_t unit, void *arg)
{
	struct seen *s = arg;
	struct ferry_flow want;
	uint32_t n;

	memcpy(&n, f->saddr + 12, sizeof(n));
	assert_true(n < s->n);
	want = flow(s->w, n);
	assert_memory_equal(f, &want, sizeof(want));
	assert_int_equal(unit, s->unit[n]);
	s->unit[n] = 0;
	s->found++;
	return s->stop_after && s->found == s->stop_after ? -ECANCELED : 0;
}

static void insert_find_delete(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f, other;

		world_open(&w, v6, 64, STASH_MAX);
		f = flow(&w, 7), other = flow(&w, 8);
		assert_int_equal(table_find(&w.t, &f), 0);
		assert_int_equal(table_delete(&w.t, &f), -ENOENT);
		assert_int_equal(table_insert(&w.t, &f, 0xffffff), 0);
		assert_int_equal(table_find(&w.t, &f), 0xffffff);
		assert_int_equal(table_insert(&w.t, &f, 5), -EEXIST);
		assert_int_equal(table_find(&w.t, &f), 0xffffff);
		assert_int_equal(table_find(&w.t, &other), 0);
		assert_int_equal(used(&w), 1);
		assert_int_equal(table_delete(&w.t, &f), 0);
		assert_int_equal(table_find(&w.t, &f), 0);
		assert_int_equal(table_delete(&w.t, &f), -ENOENT);
		assert_int_equal(used(&w), 0);
		assert_int_equal(w.graces, 0);
		world_close(&w);
	}
}

static void what_is_no_entry_is_refused(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f;

		world_open(&w, v6, 64, STASH_MAX);
		f = flow(&w, 7);
		assert_int_equal(table_insert(&w.t, &f, 0), -EINVAL);
		assert_int_equal(table_insert(&w.t, &f, 1 << FERRY_UNIT_BITS), -EINVAL);
		f.proto = 1;
		assert_int_equal(table_insert(&w.t, &f, 1), -EINVAL);
		f.proto = 132; /* 4 in the 7 bits of a slot */
		assert_int_equal(table_insert(&w.t, &f, 1), -EINVAL);
		f.proto = 0;
		assert_int_equal(table_insert(&w.t, &f, 1), -EINVAL);
		assert_int_equal(used(&w), 0);
		world_close(&w);
	}
}

/* Each octet of the key matters, ports and protocol too. */
static void a_flow_is_all_of_its_tuple(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f;

		world_open(&w, v6, 1, STASH_MAX); /* one bucket: the hash hides nothing */
		f = flow(&w, 6);
		assert_int_equal(table_insert(&w.t, &f, 9), 0);
		for (size_t i = 0; i < offsetof(struct ferry_flow, proto); i++) {
			struct ferry_flow g = f;

			if (!v6 && i % 16 < 12 && i < 32)
				continue; /* v4-mapped */
			((uint8_t *)&g)[i] ^= 0x40;
			assert_int_equal(table_find(&w.t, &g), 0);
			assert_int_equal(table_delete(&w.t, &g), -ENOENT);
		}
		f.proto = 17;
		assert_int_equal(table_find(&w.t, &f), 0);
		world_close(&w);
	}
}

static void full_at_60_percent(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f;
		uint32_t limit, n = 0;
		int r;

		world_open(&w, v6, 1024, 1024);
		limit = slot_count(&w) * 60 / 100;
		do {
			f = flow(&w, n);
			r = table_insert(&w.t, &f, n + 1);
		} while (!r && ++n);
		assert_int_equal(r, -ENOSPC);
		assert_int_equal(used(&w), limit);
		assert_int_equal(n, limit + w.t.stash_used);
		print_message("IPv%d: %u flows, %u of them in the stash\n", v6 ? 6 : 4, n,
			      w.t.stash_used);
		for (uint32_t i = 0; i < n; i++) {
			f = flow(&w, i);
			assert_int_equal(table_find(&w.t, &f), i + 1);
		}
		f = flow(&w, 0);
		assert_int_equal(table_delete(&w.t, &f), 0);
		f = flow(&w, n);
		assert_int_equal(table_insert(&w.t, &f, 1), 0);
		world_close(&w);
	}
}

/* Every slot is taken, behind the table's back: its limit of 60 % is not in the way, so what comes
 * must spill. */
static void crowd(struct world *w)
{
	for (uint32_t b = 0; b < w->t.buckets4; b++) {
		for (unsigned int s = 0; s < (w->v6 ? 3U : 4U); s++)
			*slot_b(w, b, s) = FERRY_SLOT_B(1 + s, 6, 77);
	}
}

static void spills_into_the_stash(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		uint32_t units[STASH_MAX + 1];
		struct world w;
		struct ferry_flow f;

		world_open(&w, v6, 2, STASH_MAX);
		crowd(&w);
		for (uint32_t n = 0; n < STASH_MAX; n++) {
			f = flow(&w, n);
			assert_int_equal(table_insert(&w.t, &f, n + 1), 0);
			assert_int_equal(w.t.stash_used, n + 1);
			assert_int_equal(table_find(&w.t, &f), n + 1);
			assert_int_equal(table_insert(&w.t, &f, n + 1), -EEXIST);
		}
		f = flow(&w, STASH_MAX);
		assert_int_equal(table_insert(&w.t, &f, 1), -ENOSPC);
		assert_int_equal(table_find(&w.t, &f), 0);
		for (uint32_t b = 0; b < 2; b++) /* the entries there are unharmed */
			assert_int_equal(*slot_b(&w, b, 0),
					 FERRY_SLOT_B(1, 6, 77) | FERRY_SLOT_SPILLED);
		f = flow(&w, 3);
		assert_int_equal(table_delete(&w.t, &f), 0);
		assert_int_equal(table_find(&w.t, &f), 0);
		assert_int_equal(table_delete(&w.t, &f), -ENOENT);
		assert_int_equal(w.t.stash_used, STASH_MAX - 1);
		f = flow(&w, STASH_MAX);
		assert_int_equal(table_insert(&w.t, &f, STASH_MAX + 1), 0);
		for (uint32_t n = 0; n <= STASH_MAX; n++)
			units[n] = n == 3 ? 0 : n + 1;
		/* the crowd is not the walk's business */
		memset(w.t.bucket4, 0, 2 * sizeof(*w.t.bucket4));
		memset(w.t.bucket6, 0, 2 * sizeof(*w.t.bucket6));
		struct seen s = { .w = &w, .unit = units, .n = STASH_MAX + 1 };
		assert_int_equal(table_walk(&w.t, visit, &s), 0);
		assert_int_equal(s.found, STASH_MAX);
		world_close(&w);
	}
}

static void without_a_stash_it_is_full(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f;

		world_open(&w, v6, 2, 0);
		crowd(&w);
		f = flow(&w, 1);
		assert_int_equal(table_insert(&w.t, &f, 1), -ENOSPC);
		assert_int_equal(table_delete(&w.t, &f), -ENOENT);
		assert_int_equal(*slot_b(&w, 0, 0), FERRY_SLOT_B(1, 6, 77));
		world_close(&w);
	}
}

/* The spilled bit lives in slot 0's B and says that readers must look further: it outlives any
 * entry there. */
static void the_spilled_bit_stays(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		struct ferry_flow f, spilled;

		world_open(&w, v6, 1, STASH_MAX);
		spilled = flow(&w, 99);
		crowd(&w);
		assert_int_equal(table_insert(&w.t, &spilled, 99), 0);
		assert_int_equal(w.t.stash_used, 1);
		for (unsigned int s = 0; s < (v6 ? 3 : 4); s++)
			*slot_b(&w, 0, s) &= FERRY_SLOT_SPILLED;
		f = flow(&w, 1);
		assert_int_equal(table_insert(&w.t, &f, 1), 0);
		assert_int_equal(*slot_b(&w, 0, 0) & ~FERRY_SLOT_SPILLED,
				 FERRY_SLOT_B(f.sport | f.dport << 16, f.proto, 1));
		assert_true(*slot_b(&w, 0, 0) & FERRY_SLOT_SPILLED);
		assert_int_equal(table_find(&w.t, &f), 1);
		assert_int_equal(table_delete(&w.t, &f), 0);
		assert_int_equal(*slot_b(&w, 0, 0), FERRY_SLOT_SPILLED);
		assert_int_equal(table_find(&w.t, &f), 0);
		assert_int_equal(table_find(&w.t, &spilled), 99);
		world_close(&w);
	}
}

/* One bucket: every slot but the freed one is filled by hand, so the next entry must take it. */
static void a_freed_slot_waits_for_grace(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct ferry_flow first, second;
		struct world w;

		world_open(&w, v6, 1, STASH_MAX);
		first = flow(&w, 1), second = flow(&w, 2);
		assert_int_equal(table_insert(&w.t, &first, 1), 0);
		for (unsigned int s = 1; s < (v6 ? 3 : 4); s++)
			*slot_b(&w, 0, s) = FERRY_SLOT_B(s, 6, 77);
		assert_int_equal(table_delete(&w.t, &first), 0);
		assert_true(w.t.any_freed);
		assert_int_equal(w.graces, 0);
		w.grace_says = -EIO; /* readers may be there: the slot is not to be had */
		assert_int_equal(table_insert(&w.t, &second, 2), -EIO);
		assert_int_equal(w.graces, 1);
		assert_int_equal(*slot_b(&w, 0, 0), 0);
		assert_int_equal(table_find(&w.t, &second), 0);
		w.grace_says = 0;
		assert_int_equal(table_insert(&w.t, &second, 2), 0);
		assert_int_equal(w.graces, 2);
		assert_false(w.t.any_freed);
		assert_int_equal(table_find(&w.t, &second), 2);
		world_close(&w);
	}
}

/* Slots that were never used, or not since a grace period, cost none. */
static void grace_only_where_it_must_be(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct world w;
		unsigned int slots = v6 ? 3 : 4;

		world_open(&w, v6, 1, STASH_MAX);
		for (unsigned int n = 0; n < slots; n++) {
			struct ferry_flow f = flow(&w, n);

			assert_int_equal(table_insert(&w.t, &f, 1), 0);
			assert_int_equal(table_delete(&w.t, &f), 0);
			assert_int_equal(w.graces, 0);
		}
		for (unsigned int n = 0; n < 3 * slots; n++) {
			struct ferry_flow f = flow(&w, n);

			assert_int_equal(table_insert(&w.t, &f, 1), 0);
			assert_int_equal(table_delete(&w.t, &f), 0);
			assert_int_equal(w.graces, 1 + n / slots);
		}
		world_close(&w);
	}
}

/* A later agent takes the memory and the stash as they are. */
static void used_memory_is_adopted(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		enum { N = 20 };
		uint32_t units[N];
		struct table second;
		struct world w;

		world_open(&w, v6, 16, STASH_MAX);
		for (uint32_t n = 0; n < N; n++) {
			struct ferry_flow f = flow(&w, n);

			units[n] = n + 1;
			assert_int_equal(table_insert(&w.t, &f, n + 1), 0);
		}
		second = w.t;
		second.used4 = second.used6 = second.stash_used = 1234;
		assert_int_equal(table_init(&second), 0);
		assert_int_equal(second.used4, w.t.used4);
		assert_int_equal(second.used6, w.t.used6);
		assert_int_equal(second.stash_used, w.t.stash_used);
		struct seen s = { .w = &w, .unit = units, .n = N, .stop_after = 3 };
		assert_int_equal(table_walk(&second, visit, &s), -ECANCELED);
		assert_int_equal(s.found, 3);
		s.stop_after = 0;
		for (uint32_t n = 0; n < N; n++)
			units[n] = n + 1;
		s.found = 0;
		assert_int_equal(table_walk(&second, visit, &s), 0);
		assert_int_equal(s.found, N);
		table_close(&second);
		world_close(&w);
	}
}

static void a_used_stash_is_adopted(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct table second;
		struct world w;

		world_open(&w, v6, 2, STASH_MAX);
		crowd(&w);
		for (uint32_t n = 0; n < 5; n++) {
			struct ferry_flow f = flow(&w, n);

			assert_int_equal(table_insert(&w.t, &f, n + 1), 0);
		}
		second = w.t;
		second.stash_used = 0;
		assert_int_equal(table_init(&second), 0);
		assert_int_equal(second.stash_used, 5);
		assert_int_equal(v6 ? second.used6 : second.used4, slot_count(&w));
		table_close(&second);
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(insert_find_delete),
		cmocka_unit_test(what_is_no_entry_is_refused),
		cmocka_unit_test(a_flow_is_all_of_its_tuple),
		cmocka_unit_test(full_at_60_percent),
		cmocka_unit_test(spills_into_the_stash),
		cmocka_unit_test(without_a_stash_it_is_full),
		cmocka_unit_test(the_spilled_bit_stays),
		cmocka_unit_test(a_freed_slot_waits_for_grace),
		cmocka_unit_test(grace_only_where_it_must_be),
		cmocka_unit_test(used_memory_is_adopted),
		cmocka_unit_test(a_used_stash_is_adopted),
	};

	return cmocka_run_group_tests_name("table", t, NULL, NULL) ? 1 : 0;
}
