/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unit words and records (ctl/dataplane/unit.c) on plain memory, with the kernel's grace period: a
 * word changes by compare-and-swap only, unit 0 is nobody, a freed unit is used again only after a
 * grace period, and then with a clean record.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <bpf/bpf.h>
#include "dataplane/dataplane.h"

static void open_world(struct dataplane *d, uint32_t units)
{
	memset(d, 0, sizeof(*d));
	d->control.units = units;
	d->words = calloc(units, sizeof(*d->words));
	d->records = calloc(units, sizeof(*d->records));
	d->unit_freed = calloc(units, 1);
	d->grace_outer = -1;
}

/* Without these maps there is no grace period, and dataplane_grace() fails. */
static void allow_grace(struct dataplane *d)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);

	d->grace_inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "inner", 4, 4, 1, NULL);
	opts.inner_map_fd = (uint32_t)d->grace_inner;
	d->grace_outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "outer", 4, 4, 1, &opts);
	assert_true(d->grace_outer >= 0); /* needs CAP_BPF */
}

static void close_world(struct dataplane *d)
{
	free(d->words);
	free(d->records);
	free(d->unit_freed);
	if (d->grace_outer >= 0) {
		close(d->grace_inner);
		close(d->grace_outer);
	}
}

static uint32_t take(struct dataplane *d)
{
	uint32_t unit = unit_alloc(d);

	if (unit) {
		assert_true(unit < d->control.units);
		assert_true(unit_swap(d, unit, 0, FERRY_WORD(1, FERRY_LOCAL, 0)));
	}
	return unit;
}

static void every_unit_but_the_first(void **state)
{
	static const uint32_t sizes[] = { 2, 3, 64, 1000 };

	(void)state;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct dataplane d;
		uint8_t seen[1000] = {};

		open_world(&d, sizes[s]);
		for (uint32_t i = 1; i < sizes[s]; i++) {
			uint32_t unit = take(&d);

			assert_true(unit && !seen[unit]);
			seen[unit] = 1;
		}
		assert_int_equal(unit_alloc(&d), 0);
		allow_grace(&d);
		assert_int_equal(unit_alloc(&d), 0);
		close_world(&d);
	}
}

static void a_freed_unit_waits_for_the_grace_period(void **state)
{
	static const uint8_t uuid[16] = { 1, 2, 3 };
	struct dataplane d;
	uint32_t unit;

	(void)state;
	open_world(&d, 2);
	unit = take(&d);
	memcpy(unit_record(&d, unit)->uuid, uuid, 16);
	unit_record(&d, unit)->newer = 7;
	assert_int_equal(unit_by_uuid(&d, uuid), unit);
	unit_free(&d, unit);
	assert_int_equal(unit_word(&d, unit), 0);
	assert_int_equal(unit_by_uuid(&d, uuid), 0);
	/* no grace: nobody may have it */
	assert_int_equal(unit_alloc(&d), 0);
	allow_grace(&d);
	assert_int_equal(unit_alloc(&d), unit);
	assert_int_equal(unit_record(&d, unit)->newer, 0);
	assert_int_equal(unit_record(&d, unit)->uuid[0], 0);
	close_world(&d);
}

/* As long as others are free, none is waited for; one grace period is for all of them. */
static void units_are_used_in_turn(void **state)
{
	struct dataplane d;

	(void)state;
	open_world(&d, 1000);
	for (int i = 0; i < 999; i++) {
		uint32_t unit = take(&d);

		assert_true(unit);
		unit_free(&d, unit);
	}
	assert_int_equal(take(&d), 0);
	allow_grace(&d);
	assert_true(take(&d));
	for (int i = 0; i < 1000; i++)
		assert_int_equal(d.unit_freed[i], 0);
	close_world(&d);
}

static void a_word_is_its_parts(void **state)
{
	static const struct {
		uint32_t epoch, state, hop;
	} rows[] = {
		{ 0, FERRY_FREE, 0 },
		{ 1, FERRY_LOCAL, 0 },
		{ UINT32_MAX, FERRY_GONE, FERRY_HOP_MASK },
		{ 0x80000000U, FERRY_REMOTE, 1023 },
		{ 5, FERRY_FENCED, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t w = FERRY_WORD(rows[i].epoch, rows[i].state, rows[i].hop);

		assert_int_equal(FERRY_WORD_EPOCH(w), rows[i].epoch);
		assert_int_equal(FERRY_WORD_STATE(w), rows[i].state);
		assert_int_equal(FERRY_WORD_HOP(w), rows[i].hop);
		assert_non_null(state_name(rows[i].state));
	}
	assert_string_equal(state_name(FERRY_STATES), "invalid");
	assert_true(FERRY_NEWER(1, 0) && FERRY_NEWER(0, UINT32_MAX) && !FERRY_NEWER(3, 3));
}

static void only_from_what_it_was(void **state)
{
	struct dataplane d;
	uint32_t unit;
	uint64_t local = FERRY_WORD(1, FERRY_LOCAL, 0), fenced = FERRY_WORD(2, FERRY_FENCED, 2);

	(void)state;
	open_world(&d, 4);
	unit = take(&d);
	assert_false(unit_swap(&d, unit, fenced, local));
	assert_int_equal(unit_word(&d, unit), local);
	assert_true(unit_swap(&d, unit, local, fenced));
	assert_false(unit_swap(&d, unit, local, fenced));
	assert_int_equal(unit_word(&d, unit), fenced);
	close_world(&d);
}

#define SWAPS 100000

static void *swapper(void *arg)
{
	struct dataplane *d = arg;

	for (int won = 0; won < SWAPS;) {
		uint64_t word = unit_word(d, 1);

		won += unit_swap(d, 1, word,
				 FERRY_WORD(FERRY_WORD_EPOCH(word) + 1, FERRY_LOCAL, 0));
	}
	return NULL;
}

/* The datapath raises a LOCAL word while the agent changes it: nobody's swap is lost. */
static void no_swap_is_lost(void **state)
{
	pthread_t threads[4];
	struct dataplane d;

	(void)state;
	open_world(&d, 2);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, swapper, &d), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(FERRY_WORD_EPOCH(unit_word(&d, 1)), 4 * SWAPS);
	close_world(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_unit_but_the_first),
		cmocka_unit_test(a_freed_unit_waits_for_the_grace_period),
		cmocka_unit_test(units_are_used_in_turn),
		cmocka_unit_test(a_word_is_its_parts),
		cmocka_unit_test(only_from_what_it_was),
		cmocka_unit_test(no_swap_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
