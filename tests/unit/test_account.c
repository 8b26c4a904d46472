// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the witness's and a guard's numbers mean (ctl/listener/account.h), as values: the identity,
 * what stands against it, and the sentences, whatever a program is called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/util.h"
#include "listener/account.h"

static const struct {
	const char *name;
	bool guarded;
	__u64 queued, reset, half_closed, gone; /* the witness's */
	uint64_t alive, dead, held, cancelled;  /* the program's */
	uint64_t lost;
	int64_t unexplained;
} rows[] = {
	{ "nothing happened", .guarded = true },
	{ "nobody guards, all lost", .queued = 9, .reset = 6, .half_closed = 2, .gone = 1,
	  .lost = 9 },
	{ "nobody guards, the kernel migrates", .queued = 9, .reset = 2, .lost = 2,
	  .unexplained = 7 },
	{ "all go to another", true, 9, .alive = 7, .dead = 2 },
	{ "all are held", true, 500, .held = 500 },
	{ "some of each", true, 20, .alive = 5, .dead = 3, .held = 12 },
	{ "all are cancelled: none is lost", true, 9, 9, .cancelled = 9 },
	{ "the dead are cancelled, too", true, 9, 5, 1, 3, .cancelled = 9 },
	{ "some are cancelled, some are lost", true, 20, 10, .alive = 6, .held = 4, .cancelled = 7,
	  .lost = 3 },
	{ "the program was asked about none", true, 9, 9, .lost = 9 },
	{ "a chosen listener was gone", true, 9, 2, .alive = 9, .lost = 2, .unexplained = -2 },
	{ "another program gave them on", true, 9, .alive = 4, .unexplained = 5 },
	{ "read before the kernel had ended them", true, 9, 4, .cancelled = 9 },
	{ "large", true, 1ULL << 40, 1ULL << 39, .held = 1ULL << 39, .lost = 1ULL << 39 },
};

static void identity(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const __u64 n[WITNESS_COUNT] = { [WITNESS_QUEUED] = rows[i].queued,
						 [WITNESS_RESET] = rows[i].reset,
						 [WITNESS_HALF_CLOSED] = rows[i].half_closed,
						 [WITNESS_GONE] = rows[i].gone };
		const uint64_t counts[LISTENER_COUNT] = {
			[LISTENER_SYN_HELD] = 77,         [LISTENER_SYN_MEMBER] = 88,
			[LISTENER_ALIVE] = rows[i].alive, [LISTENER_DEAD] = rows[i].dead,
			[LISTENER_HELD] = rows[i].held,   [LISTENER_CANCELLED] = rows[i].cancelled
		};
		struct account a = account_of(n, rows[i].guarded ? counts : NULL);

		printf("%s: lost %lu, unexplained %ld\n", rows[i].name, (unsigned long)a.lost,
		       (long)a.unexplained);
		assert_int_equal(a.queued, rows[i].queued);
		assert_int_equal(a.lost, rows[i].lost);
		assert_int_equal(a.unexplained, rows[i].unexplained);
		assert_true(a.queued == a.migrated_alive + a.migrated_dead + a.held + a.cancelled +
						a.lost + (uint64_t)a.unexplained);
	}
}

#define V4(a, b, c, d)                                                                             \
	{                                                                                          \
		[10] = 0xff, 0xff, a, b, c, d                                                      \
	}
#define HERE 7

static const struct {
	struct witness_close c;
	const char *text;
} sentences[] = {
	{ { .comm = "nginx",
	    .pid = 12,
	    .key = { HERE, V4(0, 0, 0, 0), 80, {} },
	    .n = { 1, 37, 37 } },
	  "nginx (pid 12) closed 0.0.0.0:80: 37 clients reset" },
	{ { .comm = "nginx",
	    .pid = 12,
	    .key = { HERE, V4(127, 0, 0, 1), 8080, {} },
	    .n = { 1, 1, 1 } },
	  "nginx (pid 12) closed 127.0.0.1:8080: 1 client reset" },
	{ { .comm = "node",
	    .pid = 1,
	    .way = WITNESS_SHUT_DOWN,
	    .key = { HERE, {}, 80, {} },
	    .n = { 1, 10, 4, 3, 2, 1, 1 } },
	  "node (pid 1) shut down [::]:80: 4 clients reset, 3 reset that had closed their side, 2 ended "
	  "whose clients had gone before, 1 given to another listener; 1 handshake was under way, whose "
	  "end is not seen" },
	{ { .comm = "ss",
	    .pid = 4194304,
	    .way = WITNESS_DESTROYED,
	    .key = { HERE + 1, { [15] = 1 }, 65535, {} },
	    .n = { 1, 2, 0, 1, 1, 0, 2 } },
	  "ss (pid 4194304) destroyed [::1]:65535 in network namespace 8: 1 reset that had closed its "
	  "side, 1 ended whose client had gone before; 2 handshakes were under way, whose end is not "
	  "seen" },
	{ { .comm = "a", .pid = 2, .way = 9, .key = { HERE, V4(1, 2, 3, 4), 1, {} }, .n = { 1 } },
	  "a (pid 2) ended 1.2.3.4:1: nobody was queued" },
	{ { .comm = "\033[2J\n\xff\xc2\x9b ok%s",
	    .pid = 3,
	    .key = { HERE, V4(1, 2, 3, 4), 1, {} },
	    .n = { 1, 5, 0, 0, 0, 5 } },
	  "?[2J???? ok%s (pid 3) closed 1.2.3.4:1: 5 given to another listener" },
	{ { .comm = { 's', 'i', 'x', 't', 'e', 'e', 'n', '-', 'c', 'h', 'a', 'r', 's', '-', '-',
		      '!' },
	    .pid = 4,
	    .key = { HERE, V4(1, 2, 3, 4), 1, {} },
	    .n = { 1 } },
	  "sixteen-chars--! (pid 4) closed 1.2.3.4:1: nobody was queued" },
};

static void words(void **state)
{
	char text[ACCOUNT_SENTENCE];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sentences); i++)
		assert_string_equal(account_sentence(&sentences[i].c, HERE, text),
				    sentences[i].text);
}

/* The largest that can be is whole, and in bounds. */
static void longest(void **state)
{
	struct witness_close c = { .pid = UINT32_MAX, .way = WITNESS_DESTROYED };
	char text[ACCOUNT_SENTENCE];

	(void)state;
	memset(c.comm, 'm', sizeof(c.comm));
	memset(&c.key, 0xee, sizeof(c.key));
	memset(c.n, 0xff, sizeof(c.n));
	account_sentence(&c, HERE, text);
	assert_true(strlen(text) < sizeof(text) - 1);
	assert_non_null(strstr(text, "whose end is not seen"));
}

static void sums(void **state)
{
	const __u64 none[WITNESS_COUNT] = {}, one[WITNESS_COUNT] = { 1, 2, 2 },
		    many[WITNESS_COUNT] = { 30, 40, 30, 4, 3, 3, 0 };
	const struct witness_client lost = { .kind = WITNESS_CLIENT,
					     .count = WITNESS_HALF_CLOSED,
					     .key = { HERE, {}, 443, {} },
					     .remote = { [15] = 9 },
					     .remote_port = 40000 };
	char text[ACCOUNT_SENTENCE];

	(void)state;
	assert_string_equal(account_sum(none, text), "0 closes with 0 queued: nobody was queued");
	assert_string_equal(account_sum(one, text), "1 close with 2 queued: 2 clients reset");
	assert_string_equal(
		account_sum(many, text),
		"30 closes with 40 queued: 30 clients reset, 4 reset that had closed their "
		"side, 3 ended whose clients had gone before, 3 given to another listener");
	assert_int_equal(account_lost(many), 37);
	assert_string_equal(
		account_client(&lost, HERE, text),
		"client [::9]:40000 of [::]:443 was reset after it had closed its side");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity),
		cmocka_unit_test(words),
		cmocka_unit_test(longest),
		cmocka_unit_test(sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
