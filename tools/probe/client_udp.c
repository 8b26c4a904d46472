// SPDX-License-Identifier: BSD-2-Clause
/*
 * The UDP socket of a probe-client unit: datagrams at a rate, each of which the server answers.
 *
 * A datagram is missing when no answer echoes its seq; on which way it was lost, the checkers of
 * both sides say. Nothing is sent twice.
 *
 * Invariant: t_send[0..n) are the datagrams made (all but the last are sent); answered is how many
 * of them have their top bit set.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define ANSWERED (1ULL << 63)
#define DATAGRAMS_A_ROUND 64
#define LATE_MAX (10 * NSEC_PER_MSEC)

static void got_answer(const struct stream_header *h, const uint8_t *payload, void *arg)
{
	struct udp *u = arg;

	(void)payload;
	if (h->echo_seq >= u->n || (u->t_send[h->echo_seq] & ANSWERED))
		return;
	histogram_add(&u->unit->client->udp_rtt,
		      (now_ns() - u->t_send[h->echo_seq]) / 1000);
	u->t_send[h->echo_seq] |= ANSWERED;
	u->answered++;
}

static void udp_ready(struct source *source, uint32_t events)
{
	struct udp *u = container_of(source, struct udp, source);
	uint8_t buf[STREAM_MAX];

	(void)events;
	for (int i = 0; i < DATAGRAMS_A_ROUND; i++) {
		ssize_t n = recv(source->fd, buf, sizeof(buf), 0);

		if (n >= 0)
			stream_rx_datagram(&u->rx, buf, (size_t)n);
		else if (errno == EAGAIN)
			return;
		else
			u->send_errors++; /* the ICMP error of an earlier datagram */
	}
}

static int remember(struct udp *u, uint64_t now)
{
	if (u->n == u->cap) {
		uint64_t cap = u->cap ? u->cap * 2 : 1024;
		uint64_t *grown = realloc(u->t_send, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		u->t_send = grown;
		u->cap = cap;
	}
	u->t_send[u->n++] = now;
	return 0;
}

static int send_one(struct udp *u, uint64_t now)
{
	if (!stream_tx_left(&u->tx)) {
		if (stream_tx_data(&u->tx, now, u->rx.newest) || remember(u, now))
			return -ENOMEM;
	}
	/* An error is an earlier datagram's, most likely, and is cleared by telling it once. */
	for (int i = 0; i < 2; i++) {
		if (send(u->source.fd, stream_tx_at(&u->tx), stream_tx_left(&u->tx),
			 MSG_NOSIGNAL) >= 0)
			break;
		if (errno == EAGAIN || errno == ENOBUFS) {
			u->blocked++;
			return -EAGAIN;
		}
		u->send_errors++;
	}
	stream_tx_advance(&u->tx, stream_tx_left(&u->tx));
	return 0;
}

void udp_go(struct udp *u, uint64_t now)
{
	const struct client *c;

	if (u->source.fd < 0)
		return;
	c = u->unit->client;
	while (now >= udp_due(u)) {
		if (send_one(u, now)) {
			u->due = now + NSEC_PER_MSEC;
			break;
		}
		u->due += NSEC_PER_SEC / c->udp_rate;
		if (u->due + LATE_MAX < now)
			u->due = now - LATE_MAX;
	}
	loop_watch(c->loop, &u->source, c->paused ? 0 : EPOLLIN);
}

uint64_t udp_due(const struct udp *u)
{
	const struct client *c;

	if (u->source.fd < 0)
		return NEVER;
	c = u->unit->client;
	if (stream_tx_left(&u->tx))
		return u->due;
	/* The server's socket exists when it has said that the unit is complete. */
	if (!c->ready || c->stopping || !c->udp_rate || c->idle || u->error)
		return NEVER;
	return u->due;
}

int udp_open(struct cunit *u)
{
	struct client *c = u->client;
	union address to = c->server, from = { 0 };
	int fd;

	if (c->bind)
		from = c->bind_address;
	else
		from.sa.sa_family = to.sa.sa_family;
	address_set_port(&from, 0);
	fd = udp_bind(&from, 0);
	if (fd < 0)
		return fd;
	address_set_port(&to, c->udp_port);
	if (connect(fd, &to.sa, address_size(&to))) {
		int err = -errno;

		close(fd);
		return err;
	}
	u->udp.source.fd = fd;
	u->udp.source.ready = udp_ready;
	stream_tx_init(&u->udp.tx, ++c->last_conn, 0,
		       c->max_len < UDP_MAX_LEN ? (uint32_t)c->max_len : UDP_MAX_LEN);
	stream_rx_init(&u->udp.rx, u->udp.tx.conn, STREAM_FROM_SERVER, got_answer, &u->udp);
	return 0;
}
