// SPDX-License-Identifier: BSD-2-Clause
/*
 * The datapath's programs, packet by packet, in the kernel (BPF_PROG_TEST_RUN): the rows of
 * rows_steer.c, those of egress.c, the frames of public reports whole and cut at every length
 * (corpus.c), and what a row cannot say (steps.c). At the end, the set of reasons that some row
 * produced must be the whole list of include/ferry/reason.h.
 *
 * One cmocka test a row, named like it. Needs root; nothing is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "rows.h"
#include "groups.h"

static struct env env;

static int setup(void **state)
{
	(void)state;
	return env_open(&env, WORLD);
}

static int teardown(void **state)
{
	(void)state;
	env_close(&env);
	return 0;
}

static void run_row(void **state)
{
	row_run(&env, *state);
}

static int run_rows(void)
{
	struct CMUnitTest *t = calloc(rows_steer_count, sizeof(*t));
	int failed;

	if (!t)
		return 1;
	for (size_t i = 0; i < rows_steer_count; i++)
		t[i] = (struct CMUnitTest){ .name = rows_steer[i].name, .test_func = run_row,
					    .initial_state = (void *)&rows_steer[i] };
	failed = _cmocka_run_group_tests("steer", t, rows_steer_count, setup, teardown);
	free(t);
	return failed;
}

static void every_reason_was_produced(void **state)
{
	int missing = 0;

	(void)state;
	for (unsigned int i = 0; i < FERRY_R_COUNT; i++) {
		if (produced[i])
			continue;
		print_error("no row produces %s\n", reason_name(i));
		missing++;
	}
	assert_int_equal(missing, 0);
}

int main(void)
{
	const struct CMUnitTest last[] = { cmocka_unit_test(every_reason_was_produced) };
	int failed, r = env_netns();

	if (r) {
		fprintf(stderr, "no network namespace of our own: %d\n", r);
		return 1;
	}
	failed = run_rows();
	failed += run_egress();
	failed += run_corpus();
	failed += run_steps();
	failed += cmocka_run_group_tests_name("reasons", last, NULL, NULL);
	return failed ? 1 : 0;
}
