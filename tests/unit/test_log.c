// SPDX-License-Identifier: BSD-2-Clause
/*
 * Log lines (ctl/base/log.h): one an event, whatever an application, a peer or a file has put into
 * it; nothing in it steers a terminal; what is too long says so; priorities are what they are asked
 * for.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/log.h"

/* What is written to stderr by one call, with a pipe or a terminal in its place. */
static char *written(int priority, const char *text, int terminal)
{
	static char out[4096];
	int saved = dup(STDERR_FILENO), ends[2];
	ssize_t n;

	if (terminal) {
		ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
		assert_true(ends[0] >= 0 && !grantpt(ends[0]) && !unlockpt(ends[0]));
		ends[1] = open(ptsname(ends[0]), O_WRONLY | O_NOCTTY);
	} else {
		assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	}
	assert_true(ends[1] >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
	log_open("ferryd[a]");
	log_line(priority, "%s", text);
	n = read(ends[0], out, sizeof(out) - 1);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	close(ends[0]);
	close(ends[1]);
	out[n < 0 ? 0 : n] = 0;
	return out;
}

static const struct {
	const char *text, *line;
} rows[] = {
	{ "node b is connected", "node b is connected" },
	{ "", "" },
	{ "two\nlines", "two\\x0alines" },
	{ "a carriage\rreturn", "a carriage\\x0dreturn" },
	{ "\n\n<0>ferryd: forged", "\\x0a\\x0a<0>ferryd: forged" },
	{ "a tab\tand an escape \33[2J", "a tab\\x09and an escape \\x1b[2J" },
	{ "delete \x7f", "delete \\x7f" },
	{ "C1 \xc2\x9b"
	  "31m in UTF-8",
	  "C1 \\xc2\\x9b31m in UTF-8" },
	{ "C1 twice \xc2\x9b\xc2\x9b\n", "C1 twice \\xc2\\x9b\\xc2\\x9b\\x0a" },
	{ "other UTF-8 \xc3\xa9 \xc2\xa9", "other UTF-8 \xc3\xa9 \xc2\xa9" },
	{ "half of C1 \xc2", "half of C1 \xc2" },
};

static void an_event_is_one_line(void **state)
{
	char want[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(want, sizeof(want), "<4>ferryd[a]: %s\n", rows[i].line);
		assert_string_equal(written(LOG_WARNING, rows[i].text, 0), want);
	}
}

static void a_terminal_gets_no_priority(void **state)
{
	(void)state;
	assert_string_equal(written(LOG_ERR, "x", 0), "<3>ferryd[a]: x\n");
	assert_string_equal(written(LOG_ERR, "x", 1), "ferryd[a]: x\r\n");
}

/* Every length about the limit, of what is taken as it is and of what grows. */
static void a_long_line_is_cut(void **state)
{
	const char fill[] = { 'x', '\n' };
	char text[3000];
	int whole = 0, cut = 0;

	(void)state;
	for (size_t f = 0; f < sizeof(fill); f++) {
		for (size_t size = 200;
		     size<sizeof(text); size += size> 900 && size < 1100 ? 1 : 97) {
			const char *line;
			size_t n;

			memset(text, fill[f], size);
			text[size] = 0;
			line = written(LOG_INFO, text, 0);
			n = strlen(line);
			assert_true(n <= 1024);
			assert_ptr_equal(strchr(line, '\n'), line + n - 1);
			if (!strcmp(line + n - 4, "...\n"))
				cut++;
			else
				whole++;
			if (fill[f] == 'x' && size < 1000)
				assert_int_equal(n, strlen("<6>ferryd[a]: ") + size + 1);
		}
	}
	assert_true(whole > 0 && cut > 0);
}

static void what_is_less_than_the_level_is_not_written(void **state)
{
	(void)state;
	assert_int_equal(log_level("debug"), -EINVAL);
	assert_int_equal(log_level(""), -EINVAL);
	assert_int_equal(log_level("warning"), 0);
	assert_string_equal(written(LOG_INFO, "x", 0), "");
	assert_string_equal(written(LOG_WARNING, "x", 0), "<4>ferryd[a]: x\n");
	assert_int_equal(log_level("error"), 0);
	assert_string_equal(written(LOG_WARNING, "x", 0), "");
	assert_string_equal(written(LOG_ERR, "x", 0), "<3>ferryd[a]: x\n");
	assert_int_equal(log_level("info"), 0);
	assert_string_equal(written(LOG_INFO, "x", 0), "<6>ferryd[a]: x\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_one_line),
		cmocka_unit_test(a_terminal_gets_no_priority),
		cmocka_unit_test(a_long_line_is_cut),
		cmocka_unit_test(what_is_less_than_the_level_is_not_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
