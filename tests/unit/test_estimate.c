/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The expected freeze (ctl/move/estimate.c) as values: grows with sockets and octets, follows what
 * was measured, and is not led astray by single moves, or by old ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "move/estimate.h"

#define NEAR 0.001

static double plain(unsigned int sockets, uint64_t octets)
{
	struct estimate none = { .count = 0 };

	return estimate_freeze_us(&none, sockets, octets);
}

static void parts(void **state)
{
	(void)state;
	assert_float_equal(plain(1, 0), ESTIMATE_FIXED_US + ESTIMATE_SOCKET_US, NEAR);
	assert_float_equal(plain(253, 0) - plain(3, 0), 250 * ESTIMATE_SOCKET_US, NEAR);
	assert_float_equal(plain(1, 1000000) - plain(1, 0), 1000 * ESTIMATE_OCTET_NS, NEAR);
	assert_true(plain(253, 253ULL * 32 << 20) > plain(253, 0)); /* no overflow */
}

static void follows(void **state)
{
	struct estimate e = { .count = 0 };

	(void)state;
	assert_float_equal(estimate_factor(&e), 1, NEAR);
	for (unsigned int i = 1; i <= 5; i++)
		estimate_learn(&e, 3 * plain(i, 1000 * i), i, 1000 * i);
	assert_float_equal(estimate_factor(&e), 3, NEAR);
	assert_float_equal(estimate_freeze_us(&e, 9, 77), 3 * plain(9, 77), NEAR);
}

static void outliers(void **state)
{
	struct estimate e = { .count = 0 };

	(void)state;
	for (unsigned int i = 0; i < ESTIMATE_KEPT; i++)
		estimate_learn(&e, (i % 3 ? 2 : 1000) * plain(1, 0), 1, 0);
	assert_float_equal(estimate_factor(&e), 2, NEAR);
}

static void forgets(void **state)
{
	struct estimate e = { .count = 0 };

	(void)state;
	for (unsigned int i = 0; i < 3 * ESTIMATE_KEPT; i++)
		estimate_learn(&e, 9 * plain(1, 0), 1, 0);
	for (unsigned int i = 0; i <= ESTIMATE_KEPT / 2; i++)
		estimate_learn(&e, 2 * plain(1, 0), 1, 0);
	assert_float_equal(estimate_factor(&e), 2, NEAR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts),
		cmocka_unit_test(follows),
		cmocka_unit_test(outliers),
		cmocka_unit_test(forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
