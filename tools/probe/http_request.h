/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The little of HTTP/1.1 (RFC 9112) that probe-http understands: a request's head, and the head
 * of the answer. Pure: buffers in, values out.
 *
 * No bodies, no chunks, no ranges: a request that announces a body is bad.
 *
 * Invariant: what is not understood with certainty is 400 and the end of the connection, since the
 * start of the next request would be a guess.
 */
#ifndef PROBE_HTTP_REQUEST_H
#define PROBE_HTTP_REQUEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_MAX 8192u
#define HTTP_ANSWER_MAX 256u
#define HTTP_BODY_MAX (1ULL << 50)

struct http_request {
	int status;	/* to answer: 200, 400, 404, 405 */
	int head_only;	/* HEAD */
	int close;	/* after the answer */
	uint64_t n, seed; /* GET /bytes/N?seed=S */
};

/* Reads one request from the beginning of buf. The octets it took; 0: there must come more (not
 * when size is HTTP_HEAD_MAX). A bad one takes all. */
size_t http_parse(struct http_request *r, const char *buf, size_t size);
/* The answer's head; its length. */
size_t http_answer(const struct http_request *r, char out[HTTP_ANSWER_MAX]);
/* Octets of body that follow it. */
uint64_t http_body(const struct http_request *r);

#endif
