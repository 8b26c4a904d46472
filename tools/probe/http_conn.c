// SPDX-License-Identifier: BSD-2-Clause
/*
 * One connection of probe-http: requests one after the other, answers as fast as the socket takes
 * them.
 *
 * Reads nothing while an answer is under way: a peer that does not read its answers waits.
 *
 * Invariant: http_conn_go() leaves the watch as the state wants it; nothing else sets it.
 */
#include "http.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"

#define CHUNK 65536u
#define CHUNKS_A_ROUND 4

static int answering(const struct http_conn *c)
{
	return c->head_off < c->head_len || c->sent < c->n;
}

static void leave(struct http_conn *c, const char *how)
{
	app_event("closed",
		  "\"id\":%" PRIu64 ",\"how\":\"%s\",\"requests\":%" PRIu64 ",\"sent\":%" PRIu64
		  ",\"of\":%" PRIu64,
		  c->unit.id, how, c->requests, c->sent, c->n);
	app_unit_remove(&c->unit);
	source_close(c->app->loop, &c->source);
}

/* Takes the next request from what was read. True when there was one. */
static int next_request(struct http_conn *c)
{
	struct http_request r;
	size_t taken = c->closing ? 0 : http_parse(&r, c->in, c->in_len);

	if (!taken)
		return 0;
	c->in_len -= taken;
	memmove(c->in, c->in + taken, c->in_len);
	c->head_off = 0;
	c->head_len = http_answer(&r, c->head);
	c->sent = 0;
	c->n = http_body(&r);
	c->seed = r.seed;
	c->close = (uint32_t)r.close;
	c->requests++;
	return 1;
}

static int send_some(struct http_conn *c, const void *data, size_t n, int more)
{
	ssize_t sent = send(c->source.fd, data, n, MSG_NOSIGNAL | (more ? MSG_MORE : 0));

	return sent < 0 ? -errno : (int)sent;
}

/* 0: all is out; -EAGAIN: the socket is full, or others should have their turn. */
static int transmit(struct http_conn *c)
{
	static uint8_t chunk[CHUNK];
	int sent;

	if (c->head_off < c->head_len) {
		sent = send_some(c, c->head + c->head_off, c->head_len - c->head_off, c->n > 0);
		if (sent < 0)
			return sent;
		c->head_off += (size_t)sent;
	}
	for (int i = 0; i < CHUNKS_A_ROUND && c->head_off == c->head_len && c->sent < c->n; i++) {
		size_t n = c->n - c->sent < CHUNK ? (size_t)(c->n - c->sent) : CHUNK;

		pattern_fill(chunk, n, c->seed, c->sent);
		sent = send_some(c, chunk, n, 0);
		if (sent < 0)
			return sent;
		c->sent += (uint64_t)sent;
	}
	return answering(c) ? -EAGAIN : 0;
}

void http_conn_go(struct http_conn *c)
{
	int err = 0;

	if (c->source.fd < 0)
		return;
	while (!err && !c->send_error && (answering(c) || next_request(c))) {
		err = transmit(c);
		if (!err && c->close) {
			shutdown(c->source.fd, SHUT_WR);
			c->closing = 1;
			c->in_len = 0;
		}
	}
	if (err && err != -EAGAIN)
		c->send_error = -err;
	/* Whoever reads a dead socket learns that it is. */
	loop_watch(c->app->loop, &c->source, err == -EAGAIN ? EPOLLOUT : EPOLLIN);
}

static const char *ending(const struct http_conn *c, ssize_t got)
{
	int err = c->send_error ? c->send_error : errno;

	if (!got && !c->send_error)
		return answering(c) || c->in_len ? "fin" : "end";
	return err == ECONNRESET || err == EPIPE ? "rst" : strerror(err);
}

/* NULL, or how the connection ended. */
static const char *receive(struct http_conn *c)
{
	static char waste[HTTP_HEAD_MAX];
	int discard = c->closing || c->in_len == sizeof(c->in);
	ssize_t n = recv(c->source.fd, discard ? waste : c->in + c->in_len,
			 discard ? sizeof(waste) : sizeof(c->in) - c->in_len, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return NULL;
	if (n <= 0)
		return ending(c, n);
	if (!discard)
		c->in_len += (size_t)n;
	return NULL;
}

static void conn_ready(struct source *source, uint32_t events)
{
	struct http_conn *c = container_of(source, struct http_conn, source);
	const char *how = NULL;
	int dead = (events & (EPOLLERR | EPOLLHUP)) != 0;

	/* A reset in mid-answer; what else is in the queue can wait. */
	if (dead && answering(c)) {
		int err = 0;
		socklen_t size = sizeof(err);

		getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &err, &size);
		if (err && !c->send_error)
			c->send_error = err;
		errno = ECONNRESET;
		how = ending(c, -1);
	} else if (dead || (events & EPOLLIN)) {
		how = receive(c);
	}
	if (how)
		leave(c, how);
	else
		http_conn_go(c);
}

struct http_conn *http_conn_new(struct app *a, int fd, uint64_t id)
{
	struct http_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->app = a;
	c->unit.id = id;
	c->source = (struct source){ .fd = fd, .ready = conn_ready };
	return c;
}
