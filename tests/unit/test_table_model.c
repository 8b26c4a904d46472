// SPDX-License-Identifier: BSD-2-Clause
/*
 * 10^5 random inserts and deletes beside a plain array, IPv4 and IPv6, in tables small enough to
 * fill, spill and recycle all the time. FERRY_SEED repeats a run; the seed is printed.
 *
 * Invariants, after every operation: the table finds exactly what the array holds; a slot that
 * was freed holds nothing new before grace() has run; an entry that stays is never moved; the
 * spilled bit, once set, stays. After every thousandth: the walk yields the array.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include "table_world.h"

#define OPERATIONS 100000
#define FLOWS 48
#define BUCKETS 8

struct model {
	struct world w;
	uint32_t unit[FLOWS]; /* 0: not in */
	uint64_t before[BUCKETS * FERRY_SLOTS4];
	uint64_t freed_at[BUCKETS * FERRY_SLOTS4]; /* graces seen then, plus 1; 0: not freed */
	uint32_t random;
	uint32_t spills, fulls, recycled, duplicates;
};

static uint32_t next(struct model *m) /* xorshift32 (Marsaglia, 2003) */
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 17;
	return m->random ^= m->random << 5;
}

static unsigned int per_bucket(const struct model *m)
{
	return m->w.v6 ? FERRY_SLOTS6 : FERRY_SLOTS4;
}

static uint64_t *slot_at(struct model *m, uint32_t i)
{
	return slot_b(&m->w, i / per_bucket(m), i % per_bucket(m));
}

static void remember(struct model *m)
{
	for (uint32_t i = 0; i < slot_count(&m->w); i++)
		m->before[i] = *slot_at(m, i);
}

/* What the operation did to the slots, against what it may do. */
static void check_slots(struct model *m, uint32_t op)
{
	uint32_t changed = 0;

	for (uint32_t i = 0; i < slot_count(&m->w); i++) {
		uint64_t was = m->before[i] & ~FERRY_SLOT_SPILLED;
		uint64_t is = *slot_at(m, i) & ~FERRY_SLOT_SPILLED;

		if (m->before[i] & FERRY_SLOT_SPILLED && !(*slot_at(m, i) & FERRY_SLOT_SPILLED))
			fail_msg("operation %u: spilled bit lost in slot %u", op, i);
		if (was == is)
			continue;
		changed++;
		if (was && is)
			fail_msg("operation %u: slot %u replaced in place", op, i);
		if (!is) {
			m->freed_at[i] = m->w.graces + 1;
			continue;
		}
		if (m->freed_at[i] && m->w.graces < m->freed_at[i])
			fail_msg("operation %u: slot %u filled again without grace", op, i);
		m->recycled += !!m->freed_at[i];
		m->freed_at[i] = 0;
	}
	if (changed > 1)
		fail_msg("operation %u: %u slots changed", op, changed);
}

static void check_finds(struct model *m, uint32_t op)
{
	uint32_t held = 0;

	for (uint32_t n = 0; n < FLOWS; n++) {
		struct ferry_flow f = flow(&m->w, n);
		uint32_t unit = table_find(&m->w.t, &f);

		held += !!m->unit[n];
		if (unit != m->unit[n])
			fail_msg("operation %u: flow %u is in unit %u, want %u", op, n, unit,
				 m->unit[n]);
	}
	assert_int_equal(used(&m->w) + m->w.t.stash_used, held);
}

static int take_away(const struct ferry_flow *f, uint32_t unit, void *arg)
{
	struct model *m = arg;
	uint32_t n;

	memcpy(&n, f->saddr + 12, sizeof(n));
	assert_true(n < FLOWS);
	assert_int_equal(unit, m->unit[n]);
	m->unit[n] = 0; /* a second visit would fail above */
	return 0;
}

static void check_walk(struct model *m)
{
	uint32_t kept[FLOWS];

	memcpy(kept, m->unit, sizeof(kept));
	assert_int_equal(table_walk(&m->w.t, take_away, m), 0);
	for (uint32_t n = 0; n < FLOWS; n++)
		assert_int_equal(m->unit[n], 0);
	memcpy(m->unit, kept, sizeof(kept));
}

static void insert(struct model *m, uint32_t n, uint32_t op)
{
	struct ferry_flow f = flow(&m->w, n);
	uint32_t unit = 1 + next(m) % 0xffffff, stash = m->w.t.stash_used;
	int r = table_insert(&m->w.t, &f, unit);

	if (m->unit[n]) {
		if (r != -EEXIST)
			fail_msg("operation %u: second insert of flow %u: %d", op, n, r);
		m->duplicates++;
		return;
	}
	if (r == -ENOSPC) { /* 60 %, or nowhere to spill to */
		uint32_t limit = slot_count(&m->w) * TABLE_FULL_PERCENT / 100;

		if (used(&m->w) < limit && stash < STASH_MAX)
			fail_msg("operation %u: full at %u slots and %u in the stash", op,
				 used(&m->w), stash);
		m->fulls++;
		return;
	}
	if (r)
		fail_msg("operation %u: insert: %d", op, r);
	m->spills += m->w.t.stash_used - stash;
	m->unit[n] = unit;
}

static void delete(struct model *m, uint32_t n, uint32_t op)
{
	struct ferry_flow f = flow(&m->w, n);
	int r = table_delete(&m->w.t, &f), want = m->unit[n] ? 0 : -ENOENT;

	if (r != want)
		fail_msg("operation %u: delete of flow %u: %d, want %d", op, n, r, want);
	m->unit[n] = 0;
}

/* The load swings, so that both ends are met. */
static void run(struct model *m, bool v6, uint32_t seed)
{
	memset(m, 0, sizeof(*m));
	m->random = seed;
	world_open(&m->w, v6, BUCKETS, STASH_MAX);
	for (uint32_t op = 0; op < OPERATIONS / 2; op++) {
		uint32_t n = next(m) % FLOWS, growing = op / 500 & 1;

		remember(m);
		if (next(m) % 8 < (growing ? 6 : 3))
			insert(m, n, op);
		else
			delete(m, n, op);
		check_slots(m, op);
		check_finds(m, op);
		if (op % 1000 == 0)
			check_walk(m);
	}
	print_message("IPv%d: %u spills, %u times full, %u slots recycled, %u graces\n", v6 ? 6 : 4,
		      m->spills, m->fulls, m->recycled, m->w.graces);
	/* a run that met none of these would have shown nothing */
	assert_true(m->fulls > 0 && m->recycled > 0 && m->w.graces > 0 && m->duplicates > 0);
	world_close(&m->w);
}

static void random_operations(void **state)
{
	const char *given = getenv("FERRY_SEED");
	uint32_t seed = given ? strtoul(given, NULL, 0) : (uint32_t)time(NULL), spills = 0;
	static struct model m;

	(void)state;
	print_message("FERRY_SEED=%u\n", seed);
	for (int v6 = 0; v6 < 2; v6++) {
		run(&m, v6, seed | 1);
		spills += m.spills;
	}
	assert_true(spills > 0);
}

int main(void)
{
	const struct CMUnitTest t[] = { cmocka_unit_test(random_operations) };

	return cmocka_run_group_tests_name("table, at random", t, NULL, NULL) ? 1 : 0;
}
