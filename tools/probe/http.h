/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe-http's connection: http.c has options and libferry's half, http_conn.c the transfer.
 *
 * Each connection is a unit of one socket.
 *
 * Invariant: between two calls the answer under way is head[head_off..head_len), then octets
 * [sent, n) of the seed's stream; that and the request octets not yet read are all the state.
 */
#ifndef PROBE_HTTP_H
#define PROBE_HTTP_H

#include "app.h"
#include "http_request.h"

struct http_conn {
	struct source source;
	struct unit unit;
	struct app *app;
	char head[HTTP_ANSWER_MAX];
	size_t head_off, head_len;
	uint64_t sent, n, seed;
	uint32_t close;	  /* after this answer */
	uint32_t closing; /* we have shut down; what comes is thrown away until the peer's FIN */
	uint64_t requests;
	int send_error;
	char in[HTTP_HEAD_MAX];
	size_t in_len;
};

struct http_conn *http_conn_new(struct app *a, int fd, uint64_t id);
void http_conn_go(struct http_conn *c);

#endif
