// SPDX-License-Identifier: BSD-2-Clause
/*
 * The state of a probe-server unit, out of one process and into another.
 *
 * Options (rate, pauses) are not in it: they are the process's own.
 *
 * Invariant: load() takes the sockets by their roles, and takes no unit that lacks one.
 */
#include "server.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void save_conn(const struct conn *c, struct blob *b)
{
	blob_put(b, &c->hello, sizeof(c->hello));
	blob_put_u32(b, c->complete_due);
	blob_put_u32(b, c->streaming);
	blob_put_u32(b, c->end_got);
	blob_put_u32(b, c->end_sent);
	blob_put_u64(b, c->owed);
	stream_tx_save(&c->tx, b);
	stream_rx_save(&c->rx, b);
}

static int load_conn(struct conn *c, struct blob_reader *r)
{
	blob_get(r, &c->hello, sizeof(c->hello));
	c->complete_due = blob_get_u32(r);
	c->streaming = blob_get_u32(r);
	c->end_got = blob_get_u32(r);
	c->end_sent = blob_get_u32(r);
	c->owed = blob_get_u64(r);
	c->due = now_ns();
	if (stream_tx_load(&c->tx, r) || stream_rx_load(&c->rx, r))
		return -EBADMSG;
	return 0;
}

static void save_udp(const struct udp *u, struct blob *b)
{
	stream_tx_save(&u->tx, b);
	stream_rx_save(&u->rx, b);
	blob_put_u64(b, u->send_errors);
	for (const struct answer *a = u->first; a; a = a->next) {
		blob_put_u32(b, (uint32_t)a->len);
		blob_put(b, &a->to, sizeof(a->to));
		blob_put(b, a->data, a->len);
	}
	blob_put_u32(b, 0);
}

static int load_udp(struct udp *u, struct blob_reader *r)
{
	uint32_t n;

	if (stream_tx_load(&u->tx, r) || stream_rx_load(&u->rx, r))
		return -EBADMSG;
	u->send_errors = blob_get_u64(r);
	while ((n = blob_get_u32(r))) {
		const void *to = blob_view(r, sizeof(union address)), *data = blob_view(r, n);
		struct answer *a = r->bad ? NULL : malloc(sizeof(*a) + n);

		if (!a)
			return -EBADMSG;
		*a = (struct answer){ .len = n };
		memcpy(&a->to, to, sizeof(a->to));
		memcpy(a->data, data, n);
		*u->last = a;
		u->last = &a->next;
	}
	return r->bad ? -EBADMSG : 0;
}

void server_save(struct app *a, const struct unit *u, struct blob *b)
{
	const struct sunit *su = container_of(u, struct sunit, unit);

	(void)a;
	blob_put_u32(b, su->n);
	blob_put_u32(b, su->udp_kind);
	blob_put_u32(b, (uint32_t)su->udp_error);
	for (uint32_t i = 0; i < su->n; i++)
		save_conn(su->conns[i], b);
	save_udp(&su->udp, b);
}

/* Gives each connection of su its socket, by role. */
static int take_sockets(struct sunit *su, struct ferry_unit *fu)
{
	uint32_t missing = su->n + (su->udp_kind != UNIT_UDP_NONE && !su->udp_error);

	for (unsigned int i = 0; i < ferry_unit_count(fu); i++) {
		const char *role = ferry_unit_role(fu, i);
		int fd = ferry_unit_fd(fu, i);
		unsigned int index;

		if (sscanf(role, "tcp%u", &index) == 1 && index < su->n) {
			su->conns[index]->source.fd = fd;
			set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
			app_pace(&su->server->app, fd);
			missing--;
		} else if (!strcmp(role, "udp")) {
			su->udp.source.fd = fd;
			missing--;
		} else {
			su->extra_fd = fd;
		}
	}
	return missing ? -EBADMSG : 0;
}

/* What the origin had not read of its UDP socket. */
static void take_datagrams(struct sunit *su, struct ferry_unit *fu)
{
	static uint8_t buf[STREAM_MAX];

	for (unsigned int i = 0; i < ferry_unit_count(fu); i++) {
		ssize_t n;

		if (strcmp(ferry_unit_role(fu, i), "udp"))
			continue;
		while ((n = ferry_unit_datagram(fu, i, buf, sizeof(buf),
						&su->udp.from.storage)) >= 0)
			udp_datagram(&su->udp, buf, (size_t)n);
	}
}

static struct sunit *load_unit(struct server *s, struct blob_reader *r)
{
	uint32_t n = blob_get_u32(r), udp_kind = blob_get_u32(r);
	struct sunit *su;

	if (r->bad || !n || n > UNIT_TCP_MAX)
		return NULL;
	su = sunit_new(s, 0, n, udp_kind);
	if (!su)
		return NULL;
	su->udp_error = (int32_t)blob_get_u32(r);
	for (uint32_t i = 0; i < n; i++) {
		struct conn *c = conn_new(s, -1);

		su->conns[i] = c;
		if (!c || load_conn(c, r))
			goto bad;
		c->unit = su;
	}
	su->arrived = n;
	if (!load_udp(&su->udp, r))
		return su;
bad:
	s->app.ops->destroy(&s->app, &su->unit);
	return NULL;
}

struct unit *server_load(struct app *a, struct ferry_unit *fu, struct blob_reader *r)
{
	struct sunit *su = load_unit(container_of(a, struct server, app), r);

	if (!su)
		return NULL;
	if (take_sockets(su, fu)) {
		a->ops->destroy(a, &su->unit);
		return NULL;
	}
	su->whole = 1;
	take_datagrams(su, fu);
	return &su->unit;
}
