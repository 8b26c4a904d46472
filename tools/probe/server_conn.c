// SPDX-License-Identifier: BSD-2-Clause
/*
 * One TCP connection of probe-server: reads into the checker, sends what the generator makes.
 *
 * Does not know units but through server_join() and server_leave().
 *
 * Invariant: conn_go() leaves the watch as the connection's state wants it, or the connection
 * closed; nothing else sets the watch.
 */
#include "server.h"
#include "stream_io.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 65536u
#define READS_A_ROUND 4
/* With --idle: so many answers owed, and no more is read. */
#define OWED_MAX 64

static void got_message(const struct stream_header *h, const uint8_t *payload, void *arg)
{
	struct conn *c = arg;

	if (h->flags & STREAM_HELLO) {
		if (h->len != STREAM_HEADER + sizeof(c->hello) || c->unit) {
			c->broken = 1;
			return;
		}
		memcpy(&c->hello, payload, sizeof(c->hello));
		c->tx.conn = h->conn;
		c->hello_due = 1;
	} else if (h->flags & STREAM_END) {
		c->end_got = 1;
	} else if (c->server->idle) {
		c->owed++;
	}
}

static const char *ending(const struct conn *c, ssize_t got)
{
	if (c->send_error == ECONNRESET || c->send_error == EPIPE)
		return "rst";
	if (!got)
		return c->end_got && c->end_sent && !stream_tx_left(&c->tx) ? "end" : "fin";
	return errno == ECONNRESET || errno == EPIPE ? "rst" : strerror(errno);
}

/* Reads what is there. NULL, or how the connection ended. */
static const char *receive(struct conn *c)
{
	static uint8_t buf[READ_SIZE];

	for (int i = 0; i < READS_A_ROUND; i++) {
		ssize_t n = recv(c->source.fd, buf, sizeof(buf), 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return NULL;
		if (n <= 0)
			return ending(c, n);
		stream_rx_feed(&c->rx, buf, (size_t)n);
		if (c->hello_due)
			server_join(c);
		if (c->broken || c->rx.error)
			return "protocol";
		if (c->owed > OWED_MAX || (size_t)n < sizeof(buf))
			return NULL;
	}
	return NULL;
}

static int make_end(struct conn *c, uint64_t now)
{
	struct end_report r = { .sent = c->tx.messages + 1, .received = c->rx.counts };

	if (!c->hello.index) {
		r.udp_sent = c->unit->udp.tx.messages;
		r.udp_received = c->unit->udp.rx.counts;
	}
	c->end_sent = 1;
	return stream_tx_control(&c->tx, STREAM_END, &r, sizeof(r), now, c->rx.newest);
}

/* Makes the next message if one may be sent now. 0, or -EAGAIN: none. */
static int make_next(void *arg, uint64_t now)
{
	struct conn *c = arg;
	const struct server *s = c->server;

	if (c->complete_due) {
		struct complete m = { .udp_error = c->unit->udp_error };

		c->complete_due = 0;
		c->streaming = 1;
		c->due = now;
		return stream_tx_control(&c->tx, STREAM_COMPLETE, &m, sizeof(m), now,
					 c->rx.newest);
	}
	if (!c->streaming)
		return -EAGAIN;
	if (s->idle && c->owed) {
		c->owed--;
		return stream_tx_data(&c->tx, now, c->rx.newest);
	}
	if (c->end_got) {
		c->streaming = 0;
		return make_end(c, now);
	}
	if (s->idle || !stream_is_due(&c->due, s->rate, now))
		return -EAGAIN;
	return stream_tx_data(&c->tx, now, c->rx.newest);
}

void conn_go(struct conn *c, uint64_t now)
{
	uint32_t events = 0;
	int err;

	if (c->source.fd < 0)
		return;
	err = stream_send(c->source.fd, &c->tx, make_next, c, now);
	if (err && err != -EAGAIN) {
		/* Whoever reads next learns that it is over. */
		c->send_error = -err;
		events = EPOLLIN;
	} else if (err) {
		events = EPOLLOUT;
	}
	/* A pause begins and ends for units; until HELLO there is nothing to pause. */
	if ((!c->server->paused || !c->unit) && c->owed <= OWED_MAX)
		events |= EPOLLIN;
	loop_watch(c->server->app.loop, &c->source, events);
	if (conn_due(c) < c->server->next_due)
		c->server->next_due = conn_due(c);
}

uint64_t conn_due(const struct conn *c)
{
	const struct server *s = c->server;

	if (c->source.fd < 0 || !c->streaming || !s->rate || s->idle || c->send_error ||
	    (c->source.events & EPOLLOUT))
		return NEVER;
	return c->due;
}

void conn_stop(struct conn *c)
{
	loop_watch(c->server->app.loop, &c->source, 0);
}

static void conn_ready(struct source *source, uint32_t events)
{
	struct conn *c = container_of(source, struct conn, source);
	const char *how = NULL;

	/* In a pause an error still must be read, or it would wake the loop for ever. */
	if ((events & c->source.events & EPOLLIN) || (events & (EPOLLERR | EPOLLHUP)))
		how = receive(c);
	if (how)
		server_leave(c, how);
	else
		conn_go(c, now_ns());
}

struct conn *conn_new(struct server *s, int fd)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->server = s;
	c->source = (struct source){ .fd = fd, .ready = conn_ready };
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	stream_tx_init(&c->tx, 0, STREAM_FROM_SERVER, (uint32_t)s->max_len);
	stream_rx_init(&c->rx, 0, 0, got_message, c);
	return c;
}

void conn_free(struct conn *c)
{
	stream_tx_free(&c->tx);
	stream_rx_free(&c->rx);
	free(c);
}
