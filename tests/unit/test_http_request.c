// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-http's parser: what is answered, how much is taken, and that a head in pieces is waited
 * for at every length.
 *
 * Invariant: no row may read beyond its text (the copy ends where the memory ends, for ASan).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http_request.h"

#define HOST "Host: a\r\n"

static const struct row {
	const char *name, *text;
	struct http_request want;
	size_t rest; /* octets that are not taken */
} rows[] = {
	{ "get", "GET /bytes/10?seed=7 HTTP/1.1\r\n" HOST "\r\n", { 200, 0, 0, 10, 7 }, 0 },
	{ "no seed", "GET /bytes/0 HTTP/1.1\r\n" HOST "\r\n", { 200, 0, 0, 0, 0 }, 0 },
	{ "head", "HEAD /bytes/10 HTTP/1.1\r\n" HOST "\r\n", { 200, 1, 0, 10, 0 }, 0 },
	{ "next one", "GET /bytes/1 HTTP/1.1\r\n" HOST "\r\nGET ", { 200, 0, 0, 1, 0 }, 4 },
	{ "close", "GET /bytes/1 HTTP/1.1\r\nhost:a\r\nCONNECTION:  Close \r\n\r\n",
	  { 200, 0, 1, 1, 0 }, 0 },
	{ "1.0", "GET /bytes/1 HTTP/1.0\r\n\r\n", { 200, 0, 1, 1, 0 }, 0 },
	{ "1.0 keep-alive", "GET /bytes/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	  { 200, 0, 0, 1, 0 }, 0 },
	{ "length 0", "GET /bytes/1 HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
	  { 200, 0, 0, 1, 0 }, 0 },
	{ "largest seed", "GET /bytes/1?seed=18446744073709551615 HTTP/1.1\r\n" HOST "\r\n",
	  { 200, 0, 0, 1, UINT64_MAX }, 0 },
	{ "seed too large", "GET /bytes/1?seed=18446744073709551616 HTTP/1.1\r\n" HOST "\r\n",
	  { .status = 404 }, 0 },
	{ "too many octets", "GET /bytes/1125899906842625 HTTP/1.1\r\n" HOST "\r\n",
	  { .status = 404 }, 0 },
	{ "other path", "GET / HTTP/1.1\r\n" HOST "\r\n", { .status = 404 }, 0 },
	{ "no number", "GET /bytes/ HTTP/1.1\r\n" HOST "\r\n", { .status = 404 }, 0 },
	{ "junk behind", "GET /bytes/1?x=1 HTTP/1.1\r\n" HOST "\r\n", { .status = 404 }, 0 },
	{ "post", "POST /bytes/1 HTTP/1.1\r\n" HOST "\r\n", { .status = 405 }, 0 },
	{ "no host", "GET /bytes/1 HTTP/1.1\r\n\r\n", { .status = 400 }, 0 },
	{ "two hosts", "GET /bytes/1 HTTP/1.1\r\n" HOST HOST "\r\n", { .status = 400 }, 0 },
	{ "body", "GET /bytes/1 HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx",
	  { .status = 400 }, 0 },
	{ "chunks", "GET /bytes/1 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n",
	  { .status = 400 }, 0 },
	{ "folded", "GET /bytes/1 HTTP/1.1\r\n" HOST " x: y\r\n\r\n", { .status = 400 }, 0 },
	{ "no colon", "GET /bytes/1 HTTP/1.1\r\n" HOST "x\r\n\r\n", { .status = 400 }, 0 },
	{ "other version", "GET /bytes/1 HTTP/2.0\r\n" HOST "\r\n", { .status = 400 }, 0 },
	{ "no version", "GET /bytes/1\r\n" HOST "\r\n", { .status = 400 }, 0 },
	{ "nothing", "\r\n\r\n", { .status = 400 }, 0 },
};

static size_t parse_copy(struct http_request *r, const char *text, size_t n)
{
	char *copy = malloc(n ? n : 1);
	size_t taken;

	assert_non_null(copy);
	memcpy(copy, text, n);
	taken = http_parse(r, copy, n);
	free(copy);
	return taken;
}

static void test_requests(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *row = &rows[i];
		size_t n = strlen(row->text), head = (size_t)(strstr(row->text, "\r\n\r\n") + 4 -
							      row->text);
		struct http_request r;

		print_message("  %s\n", row->name);
		for (size_t part = 0; part < head; part++)
			assert_int_equal(parse_copy(&r, row->text, part), 0);
		assert_int_equal(parse_copy(&r, row->text, n), n - row->rest);
		assert_int_equal(r.status, row->want.status);
		if (r.status == 400)
			assert_true(r.close);
		if (r.status != 200)
			continue;
		assert_int_equal(r.head_only, row->want.head_only);
		assert_int_equal(r.close, row->want.close);
		assert_int_equal(r.n, row->want.n);
		assert_int_equal(r.seed, row->want.seed);
	}
}

static void test_head_is_limited(void **state)
{
	static char text[HTTP_HEAD_MAX];
	struct http_request r;

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(http_parse(&r, text, sizeof(text) - 1), 0);
	assert_int_equal(http_parse(&r, text, sizeof(text)), sizeof(text));
	assert_int_equal(r.status, 400);
}

static void test_answers(void **state)
{
	const struct http_request get = { 200, 0, 0, 5, 0 }, head = { 200, 1, 1, 5, 0 };
	const struct http_request bad = { 405, 0, 0, 5, 0 };
	char out[HTTP_ANSWER_MAX + 1] = "";

	(void)state;
	out[http_answer(&get, out)] = 0;
	assert_non_null(strstr(out, "HTTP/1.1 200 OK\r\n"));
	assert_non_null(strstr(out, "Content-Length: 5\r\n"));
	assert_int_equal(http_body(&get), 5);
	out[http_answer(&head, out)] = 0;
	assert_non_null(strstr(out, "Content-Length: 5\r\nConnection: close\r\n\r\n"));
	assert_int_equal(http_body(&head), 0);
	out[http_answer(&bad, out)] = 0;
	assert_non_null(strstr(out, "Content-Length: 0\r\nAllow: GET, HEAD\r\n"));
	assert_int_equal(http_body(&bad), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_head_is_limited),
		cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
