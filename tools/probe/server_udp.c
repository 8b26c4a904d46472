// SPDX-License-Identifier: BSD-2-Clause
/*
 * The UDP socket of a probe-server unit: answers each new datagram with one that echoes its seq.
 *
 * Does not retry and does not drop: an answer that the socket would not take waits in a list, and
 * nothing more is read until it is out.
 *
 * Invariant: a datagram that was read has its answer sent, or in the list (which moves too).
 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATAGRAMS_A_ROUND 64

static int send_to(struct udp *u, const uint8_t *data, size_t n, const union address *to)
{
	int connected = u->unit->udp_kind == UNIT_UDP_CONNECTED;

	if (sendto(u->source.fd, data, n, MSG_NOSIGNAL, connected ? NULL : &to->sa,
		   connected ? 0 : address_size(to)) >= 0)
		return 0;
	if (errno == EAGAIN || errno == ENOBUFS)
		return -EAGAIN;
	/* An ICMP error for an earlier datagram, say: this one is not sent, and that is counted. */
	u->send_errors++;
	return 0;
}

static void queue(struct udp *u, const uint8_t *data, size_t n)
{
	struct answer *a = malloc(sizeof(*a) + n);

	if (!a) {
		u->send_errors++;
		return;
	}
	a->next = NULL;
	a->to = u->from;
	a->len = n;
	memcpy(a->data, data, n);
	*u->last = a;
	u->last = &a->next;
}

static void got_datagram(const struct stream_header *h, const uint8_t *payload, void *arg)
{
	struct stream_echo echo = { h->seq, h->t_send };
	struct udp *u = arg;

	(void)payload;
	u->tx.conn = h->conn;
	if (stream_tx_data(&u->tx, now_ns(), echo))
		return;
	if (u->first || send_to(u, stream_tx_at(&u->tx), stream_tx_left(&u->tx), &u->from))
		queue(u, stream_tx_at(&u->tx), stream_tx_left(&u->tx));
	stream_tx_advance(&u->tx, stream_tx_left(&u->tx));
}

void udp_datagram(struct udp *u, const uint8_t *data, size_t n)
{
	stream_rx_datagram(&u->rx, data, n);
}

static void flush(struct udp *u)
{
	while (u->first && !send_to(u, u->first->data, u->first->len, &u->first->to)) {
		struct answer *sent = u->first;

		u->first = sent->next;
		free(sent);
	}
	if (!u->first)
		u->last = &u->first;
}

void udp_go(struct udp *u)
{
	struct server *s = u->unit->server;

	if (u->source.fd < 0)
		return;
	flush(u);
	loop_watch(s->app.loop, &u->source, u->first ? EPOLLOUT : s->paused ? 0 : EPOLLIN);
}

static void udp_ready(struct source *source, uint32_t events)
{
	struct udp *u = container_of(source, struct udp, source);
	uint8_t buf[STREAM_MAX];

	(void)events;
	for (int i = 0; i < DATAGRAMS_A_ROUND && !u->first; i++) {
		socklen_t size = sizeof(u->from);
		ssize_t n = recvfrom(source->fd, buf, sizeof(buf), 0, &u->from.sa, &size);

		if (n < 0 && errno != ECONNREFUSED)
			break;
		if (n >= 0)
			udp_datagram(u, buf, (size_t)n);
	}
	udp_go(u);
}

void udp_init(struct udp *u, struct sunit *unit)
{
	u->source = (struct source){ .fd = -1, .ready = udp_ready };
	u->unit = unit;
	u->last = &u->first;
	stream_tx_init(&u->tx, 0, STREAM_FROM_SERVER,
		       unit->server->max_len < UDP_MAX_LEN ? (uint32_t)unit->server->max_len :
							     UDP_MAX_LEN);
	stream_rx_init(&u->rx, 0, 0, got_datagram, u);
}

int udp_make(struct udp *u, const struct hello *hello, int tcp_fd, uint16_t port)
{
	int connected = hello->udp == UNIT_UDP_CONNECTED;
	const union address *to = &hello->udp_address;
	union address local;
	socklen_t size = sizeof(local);
	int fd;

	u->rx.conn = hello->udp_conn;
	if (getsockname(tcp_fd, &local.sa, &size))
		return -errno;
	address_set_port(&local, port);
	/* Connected ones share the port, each for its own peer. */
	fd = udp_bind(&local, connected);
	if (fd < 0)
		return fd;
	if (connected && connect(fd, &to->sa, address_size(to))) {
		int err = -errno;

		close(fd);
		return err;
	}
	u->source.fd = fd;
	return 0;
}

void udp_free(struct udp *u)
{
	while (u->first) {
		struct answer *next = u->first->next;

		free(u->first);
		u->first = next;
	}
	u->last = &u->first;
	stream_tx_free(&u->tx);
	stream_rx_free(&u->rx);
}
