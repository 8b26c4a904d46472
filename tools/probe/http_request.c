// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads requests and writes answers' heads; http_request.h is the contract.
 *
 * Works on the octets in place and keeps nothing between calls; a head that came in pieces is read
 * again from its beginning, at most HTTP_HEAD_MAX of it.
 *
 * Invariant: no octet beyond size is looked at.
 */
#define _GNU_SOURCE 1 /* memmem */
#include "http_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct span {
	const char *at;
	size_t n;
};

static int span_is(struct span s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.at, text, s.n);
}

static int span_is_nocase(struct span s, const char *text)
{
	return s.n == strlen(text) && !strncasecmp(s.at, text, s.n);
}

/* What is before the separator, which is taken out of rest too; n is SIZE_MAX without one. */
static struct span take(struct span *rest, const char *separator)
{
	size_t n = strlen(separator);
	const char *end = memmem(rest->at, rest->n, separator, n);
	struct span s = { rest->at, end ? (size_t)(end - rest->at) : SIZE_MAX };

	if (end) {
		rest->at += s.n + n;
		rest->n -= s.n + n;
	}
	return s;
}

static struct span trim(struct span s)
{
	while (s.n && (*s.at == ' ' || *s.at == '\t')) {
		s.at++;
		s.n--;
	}
	while (s.n && (s.at[s.n - 1] == ' ' || s.at[s.n - 1] == '\t'))
		s.n--;
	return s;
}

/* Digits to a number; what follows them is left in s. True when there was one. */
static int take_number(struct span *s, uint64_t *out, uint64_t max)
{
	size_t digits = 0;

	for (*out = 0; s->n && *s->at >= '0' && *s->at <= '9'; s->at++, s->n--, digits++) {
		uint64_t digit = (uint64_t)(*s->at - '0');

		if (*out > (max - digit) / 10)
			return 0;
		*out = *out * 10 + digit;
	}
	return digits > 0;
}

static int starts_with(struct span *s, const char *text)
{
	size_t n = strlen(text);

	if (s->n < n || memcmp(s->at, text, n))
		return 0;
	s->at += n;
	s->n -= n;
	return 1;
}

static int parse_target(struct http_request *r, struct span target)
{
	if (!starts_with(&target, "/bytes/") || !take_number(&target, &r->n, HTTP_BODY_MAX))
		return 404;
	if (starts_with(&target, "?seed=") && !take_number(&target, &r->seed, UINT64_MAX))
		return 404;
	return target.n ? 404 : 200;
}

static int parse_line(struct http_request *r, struct span line)
{
	struct span method = take(&line, " "), target = { 0 };

	if (method.n != SIZE_MAX)
		target = take(&line, " ");
	if (method.n == SIZE_MAX || target.n == SIZE_MAX || !method.n || !target.n)
		return 400;
	if (span_is(line, "HTTP/1.0"))
		r->close = 1;
	else if (!span_is(line, "HTTP/1.1"))
		return 400;
	r->head_only = span_is(method, "HEAD");
	if (!r->head_only && !span_is(method, "GET"))
		return 405;
	return parse_target(r, target);
}

/* One field; 0 when it makes the request bad. */
static int parse_field(struct http_request *r, struct span line, int *hosts)
{
	struct span name = take(&line, ":"), value = trim(line);

	if (name.n == SIZE_MAX || !name.n || memchr(name.at, ' ', name.n) ||
	    memchr(name.at, '\t', name.n))
		return 0;
	if (span_is_nocase(name, "host"))
		++*hosts;
	else if (span_is_nocase(name, "connection") && span_is_nocase(value, "close"))
		r->close = 1;
	else if (span_is_nocase(name, "connection") && span_is_nocase(value, "keep-alive"))
		r->close = 0;
	else if (span_is_nocase(name, "content-length") && !span_is(value, "0"))
		return 0;
	else if (span_is_nocase(name, "transfer-encoding"))
		return 0;
	return 1;
}

static void parse_head(struct http_request *r, struct span head)
{
	int http10, hosts = 0;

	r->status = parse_line(r, take(&head, "\r\n"));
	http10 = r->close;
	while (r->status != 400 && head.n) {
		struct span line = take(&head, "\r\n");

		if (!parse_field(r, line, &hosts))
			r->status = 400;
	}
	/* RFC 9112, 3.2: exactly one Host. */
	if (hosts > 1 || (!hosts && !http10))
		r->status = 400;
	if (r->status == 400)
		r->close = 1;
}

size_t http_parse(struct http_request *r, const char *buf, size_t size)
{
	const char *end = memmem(buf, size, "\r\n\r\n", 4);
	struct span head = { buf, end ? (size_t)(end - buf) + 2 : 0 };

	*r = (struct http_request){ .status = 400, .close = 1 };
	if (!end)
		return size < HTTP_HEAD_MAX ? 0 : size;
	r->close = 0;
	parse_head(r, head);
	return r->status == 400 ? size : head.n + 2;
}

size_t http_answer(const struct http_request *r, char out[HTTP_ANSWER_MAX])
{
	const char *reason = r->status == 200 ? "OK" :
			     r->status == 404 ? "Not Found" :
			     r->status == 405 ? "Method Not Allowed" :
						"Bad Request";
	int n = snprintf(out, HTTP_ANSWER_MAX,
			 "HTTP/1.1 %d %s\r\nContent-Type: application/octet-stream\r\n"
			 "Content-Length: %" PRIu64 "\r\n%s%s\r\n",
			 r->status, reason, r->status == 200 ? r->n : 0,
			 r->status == 405 ? "Allow: GET, HEAD\r\n" : "",
			 r->close ? "Connection: close\r\n" : "Connection: keep-alive\r\n");

	return (size_t)n;
}

uint64_t http_body(const struct http_request *r)
{
	return r->status == 200 && !r->head_only ? r->n : 0;
}
