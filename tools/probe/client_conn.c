// SPDX-License-Identifier: BSD-2-Clause
/*
 * One TCP connection of probe-client: HELLO, messages both ways, END both ways, half-close, FIN.
 *
 * Never repairs anything: what breaks a connection is recorded, and main opens another once.
 *
 * Invariant: conn_go() leaves the watch as the connection's state wants it; nothing else sets it.
 */
#include "client.h"
#include "stream_io.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 65536u
#define READS_A_ROUND 4

void conn_sample_info(struct conn *c)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	if (c->source.fd >= 0 && !getsockopt(c->source.fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		c->retransmits = info.tcpi_total_retrans;
}

static void over(struct conn *c, enum state state)
{
	conn_sample_info(c);
	source_close(c->client->loop, &c->source);
	c->state = state;
}

void conn_break(struct conn *c, enum broken how)
{
	conn_heard(c, now_ns(), 0);
	c->how = how;
	over(c, BROKEN);
}

void conn_heard(struct conn *c, uint64_t now, int deaf)
{
	struct client *cl = c->client;
	uint64_t silence = now - c->last_rx;

	if (c->state >= STREAMING && !deaf) {
		if (silence > c->silence)
			c->silence = silence;
		if (silence >= cl->gap_min_us * 1000 && cl->n_gaps < GAPS_MAX)
			cl->gaps[cl->n_gaps++] = (struct gap){ c->tx.conn, c->last_rx, now };
		else if (silence >= cl->gap_min_us * 1000)
			cl->gaps_dropped++;
	}
	c->last_rx = now;
}

static void got_control(struct conn *c, const struct stream_header *h, const uint8_t *payload)
{
	size_t size = h->len - STREAM_HEADER;
	struct complete complete;

	if ((h->flags & STREAM_COMPLETE) && c->state == WAITING && size == sizeof(complete)) {
		memcpy(&complete, payload, sizeof(complete));
		c->unit->udp.error = complete.udp_error;
		c->state = STREAMING;
		c->due = now_ns();
	} else if ((h->flags & STREAM_END) && c->state == ENDING && size == sizeof(c->report)) {
		memcpy(&c->report, payload, sizeof(c->report));
		c->end_got = 1;
	} else {
		c->error = EPROTO;
	}
}

static void got_message(const struct stream_header *h, const uint8_t *payload, void *arg)
{
	struct conn *c = arg;

	if (h->flags & STREAM_CONTROL)
		got_control(c, h, payload);
	if (!h->echo_t || h->echo_seq < c->last_echo)
		return;
	c->last_echo = h->echo_seq + 1;
	histogram_add(&c->client->rtt, (now_ns() - h->echo_t) / 1000);
}

/* The server has closed. */
static void finish(struct conn *c)
{
	if (c->state == CLOSING && !stream_rx_partial(&c->rx))
		over(c, DONE);
	else
		conn_break(c, BROKEN_FIN);
}

static void fail(struct conn *c, int err)
{
	if (c->state == CONNECTING && c->again)
		c->client->reconnect_failed++;
	conn_break(c, err == ETIMEDOUT ? BROKEN_TIMEOUT :
		      err == EPROTO    ? BROKEN_PROTOCOL :
					 BROKEN_RST);
}

static void receive(struct conn *c)
{
	static uint8_t buf[READ_SIZE];

	for (int i = 0; i < READS_A_ROUND; i++) {
		ssize_t n = recv(c->source.fd, buf, sizeof(buf), 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			if (n < 0 || c->error)
				fail(c, c->error ? c->error : errno);
			else
				finish(c);
			return;
		}
		c->last_octets = now_ns();
		conn_heard(c, c->last_octets, 0);
		stream_rx_feed(&c->rx, buf, (size_t)n);
		if (c->error == EPROTO || c->rx.error) {
			conn_break(c, BROKEN_PROTOCOL);
			return;
		}
		if ((size_t)n < sizeof(buf))
			break;
	}
}

static int make_hello(struct conn *c, uint64_t now)
{
	struct udp *udp = &c->unit->udp;
	struct hello h = {
		.unit = c->unit->id,
		.index = c->index,
		.tcp = c->unit->n,
		.udp = c->unit->udp_kind,
		.udp_conn = udp->tx.conn,
	};
	socklen_t size = sizeof(h.udp_address);

	if (udp->source.fd >= 0)
		getsockname(udp->source.fd, &h.udp_address.sa, &size);
	return stream_tx_control(&c->tx, STREAM_HELLO, &h, sizeof(h), now, c->rx.newest);
}

/* Makes the next message if one may be sent now. 0, or -EAGAIN: none. */
static int make_next(void *arg, uint64_t now)
{
	struct conn *c = arg;
	const struct client *cl = c->client;

	if (c->state != STREAMING)
		return -EAGAIN;
	if (cl->ending) {
		c->state = ENDING;
		return stream_tx_control(&c->tx, STREAM_END, NULL, 0, now, c->rx.newest);
	}
	if (cl->idle || !stream_is_due(&c->due, cl->rate, now))
		return -EAGAIN;
	return stream_tx_data(&c->tx, now, c->rx.newest);
}

void conn_go(struct conn *c, uint64_t now)
{
	uint32_t events = 0;
	int err = 0;

	if (c->source.fd < 0 || c->state == CONNECTING)
		return;
	if (!c->error)
		err = stream_send(c->source.fd, &c->tx, make_next, c, now);
	if (err == -EAGAIN)
		events = EPOLLOUT;
	else if (err)
		c->error = -err;
	if (c->state == ENDING && c->end_got && !stream_tx_left(&c->tx)) {
		shutdown(c->source.fd, SHUT_WR);
		c->state = CLOSING;
	}
	/* Whoever reads a dead socket learns that it is. */
	if (!c->client->paused || c->error)
		events |= EPOLLIN;
	loop_watch(c->client->loop, &c->source, events);
}

uint64_t conn_due(const struct conn *c)
{
	const struct client *cl = c->client;

	if (c->state != STREAMING || cl->idle || !cl->rate || c->error ||
	    (c->source.events & EPOLLOUT))
		return NEVER;
	return c->due;
}

static void connected(struct conn *c)
{
	union address a;
	socklen_t size = sizeof(a);
	int err = 0;
	socklen_t err_size = sizeof(err);

	getsockopt(c->source.fd, SOL_SOCKET, SO_ERROR, &err, &err_size);
	if (err) {
		fail(c, err);
		return;
	}
	if (!getsockname(c->source.fd, &a.sa, &size))
		address_text(&a, c->local);
	c->state = WAITING;
	c->last_rx = c->last_octets = now_ns();
	if (make_hello(c, c->last_rx))
		conn_break(c, BROKEN_PROTOCOL);
}

static void conn_ready(struct source *source, uint32_t events)
{
	struct conn *c = container_of(source, struct conn, source);

	if (c->state == CONNECTING)
		connected(c);
	else if ((events & source->events & EPOLLIN) || (events & (EPOLLERR | EPOLLHUP)))
		receive(c);
	conn_go(c, now_ns());
}

int conn_open(struct client *cl, struct cunit *u, uint32_t index, int again)
{
	struct conn *c = calloc(1, sizeof(*c));
	int fd = socket(cl->server.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (!c || fd < 0) {
		free(c);
		return fd < 0 ? -errno : -ENOMEM;
	}
	c->client = cl;
	c->unit = u;
	c->index = index;
	c->again = again;
	c->source = (struct source){ .fd = fd, .ready = conn_ready };
	stream_tx_init(&c->tx, ++cl->last_conn, 0, (uint32_t)cl->max_len);
	stream_rx_init(&c->rx, c->tx.conn, STREAM_FROM_SERVER, got_message, c);
	address_text(&cl->server, c->remote);
	c->last_rx = c->last_octets = now_ns();
	u->conns[index] = c;
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (cl->bind) {
		set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
		if (bind(fd, &cl->bind_address.sa, address_size(&cl->bind_address)))
			return -errno;
	}
	if (connect(fd, &cl->server.sa, address_size(&cl->server)) && errno != EINPROGRESS) {
		fail(c, errno);
		return 0;
	}
	return loop_watch(cl->loop, &c->source, EPOLLOUT);
}
