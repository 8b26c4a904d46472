// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-server: an application of libferry whose every octet is accounted for. Clients
 * (probe-client) open units of TCP connections and perhaps a UDP socket; messages stream both
 * ways; units move away and come, and the streams go on where they were.
 *
 * Never judges what it received: it counts, and tells the client in its END message.
 *
 * Invariant: what the server has taken from a socket is in a checker, and what it has made for a
 * socket is in a generator, whenever a callback of libferry runs; so the state is complete.
 */
#include "server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sunit *sunit_new(struct server *s, uint64_t id, uint32_t n, uint32_t udp_kind)
{
	struct sunit *su = calloc(1, sizeof(*su));

	if (!su)
		return NULL;
	su->server = s;
	su->unit.id = id;
	su->n = n;
	su->udp_kind = udp_kind;
	su->extra_fd = -1;
	udp_init(&su->udp, su);
	return su;
}

static struct sunit *find_unit(struct server *s, const struct hello *hello)
{
	struct unit *u = s->app.units.next;
	struct sunit *su;

	for (; u != &s->app.units; u = u->next)
		if (!u->dead && u->id == hello->unit)
			return container_of(u, struct sunit, unit);
	su = sunit_new(s, hello->unit, hello->tcp, hello->udp);
	if (su)
		app_unit_add(&s->app, &su->unit);
	return su;
}

void server_offer(struct app *a, struct unit *u)
{
	struct sunit *su = container_of(u, struct sunit, unit);
	int fds[UNIT_TCP_MAX + 2];
	char names[UNIT_TCP_MAX][FERRY_ROLE_MAX + 1];
	const char *roles[UNIT_TCP_MAX + 2];
	unsigned int n = 0;

	if (!su->whole)
		return;
	for (; n < su->n; n++) {
		snprintf(names[n], sizeof(names[n]), "tcp%u", n);
		fds[n] = su->conns[n]->source.fd;
		roles[n] = names[n];
	}
	if (su->udp.source.fd >= 0) {
		fds[n] = su->udp.source.fd;
		roles[n++] = "udp";
	}
	if (su->extra_fd >= 0) {
		fds[n] = su->extra_fd;
		roles[n++] = "extra";
	}
	app_offer(a, u, fds, roles, n);
}

/* The last connection of the unit has said hello. */
static void complete(struct sunit *su, const struct conn *last)
{
	struct server *s = su->server;
	int fd = last->source.fd, err = 0;

	su->whole = 1;
	if (su->udp_kind != UNIT_UDP_NONE)
		err = udp_make(&su->udp, &last->hello, fd, s->udp_port);
	if (err)
		app_event("error", "\"what\":\"udp\",\"error\":\"%s\",\"id\":%" PRIu64,
			  strerror(-err), su->unit.id);
	su->udp_error = -err;
	if (s->extra != EXTRA_NONE)
		su->extra_fd = extra_make(s->extra, fd);
	if (s->extra != EXTRA_NONE && su->extra_fd < 0)
		app_event("error", "\"what\":\"extra\",\"error\":\"%s\",\"id\":%" PRIu64,
			  strerror(-su->extra_fd), su->unit.id);
	app_event("complete", "\"id\":%" PRIu64 ",\"tcp\":%u,\"udp\":%u", su->unit.id, su->n,
		  su->udp_kind);
	server_offer(&s->app, &su->unit);
	for (uint32_t i = 0; i < su->n; i++)
		su->conns[i]->complete_due = 1;
}

/* Connection c has said hello: it belongs to a unit now, or is at fault (c->broken). */
void server_join(struct conn *c)
{
	const struct hello *h = &c->hello;
	struct sunit *su = NULL;

	c->hello_due = 0;
	if (!c->unit && h->tcp && h->tcp <= UNIT_TCP_MAX && h->index < h->tcp &&
	    h->udp <= UNIT_UDP_CONNECTED)
		su = find_unit(c->server, h);
	if (!su || su->failed || su->n != h->tcp || su->udp_kind != h->udp || su->conns[h->index]) {
		c->broken = 1;
		return;
	}
	su->conns[h->index] = c;
	c->unit = su;
	if (++su->arrived < su->n)
		return;
	complete(su, c);
	for (uint32_t i = 0; i < su->n; i++)
		if (su->conns[i] != c)
			conn_go(su->conns[i], now_ns());
	udp_go(&su->udp);
}

/* The connection is over: its unit, if any, can move no more, and ends with its last one. */
void server_leave(struct conn *c, const char *how)
{
	const struct stream_counts *n = &c->rx.counts;
	struct sunit *su = c->unit;
	int left = 0;

	if (su) {
		su->whole = 0;
		su->failed = 1;
		app_withdraw(&su->unit);
	}
	app_event("closed",
		  "\"id\":%" PRIu64 ",\"conn\":%u,\"how\":\"%s\",\"sent\":%" PRIu64
		  ",\"messages\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64
		  ",\"reordered\":%" PRIu64 ",\"crc_errors\":%" PRIu64,
		  su ? su->unit.id : 0, c->rx.conn, how, c->tx.messages, n->messages, n->lost,
		  n->duplicated, n->reordered, n->crc_errors);
	source_close(c->server->app.loop, &c->source);
	if (!su) {
		/* It was no part of anything, and no event of this round names it again. */
		conn_free(c);
		return;
	}
	for (uint32_t i = 0; i < su->n; i++)
		left += su->conns[i] && su->conns[i]->source.fd >= 0;
	if (!left)
		app_unit_remove(&su->unit);
}

static void accepted(struct app *a, int fd, const union address *from)
{
	struct server *s = container_of(a, struct server, app);
	struct conn *c = conn_new(s, fd);

	(void)from;
	if (!c) {
		close(fd);
		return;
	}
	conn_go(c, now_ns());
}

static void stop(struct app *a, struct unit *u)
{
	struct sunit *su = container_of(u, struct sunit, unit);

	for (uint32_t i = 0; i < su->n; i++)
		if (su->conns[i])
			conn_stop(su->conns[i]);
	loop_watch(a->loop, &su->udp.source, 0);
}

static void go(struct app *a, struct unit *u)
{
	struct sunit *su = container_of(u, struct sunit, unit);
	uint64_t now = now_ns();

	(void)a;
	for (uint32_t i = 0; i < su->n; i++)
		if (su->conns[i])
			conn_go(su->conns[i], now);
	udp_go(&su->udp);
}

static void destroy(struct app *a, struct unit *u)
{
	struct sunit *su = container_of(u, struct sunit, unit);

	for (uint32_t i = 0; i < su->n; i++) {
		if (!su->conns[i])
			continue;
		source_close(a->loop, &su->conns[i]->source);
		conn_free(su->conns[i]);
	}
	source_close(a->loop, &su->udp.source);
	udp_free(&su->udp);
	if (su->extra_fd >= 0)
		close(su->extra_fd);
	free(su);
}

static void tick_unit(struct sunit *su, uint64_t now, int edge)
{
	for (uint32_t i = 0; i < su->n; i++) {
		struct conn *c = su->conns[i];

		if (c && (edge || conn_due(c) <= now))
			conn_go(c, now);
		else if (c && conn_due(c) < su->server->next_due)
			su->server->next_due = conn_due(c);
	}
	if (edge)
		udp_go(&su->udp);
}

/* Sends what is due, and begins and ends pauses. */
static uint64_t tick(struct app *a, uint64_t now)
{
	struct server *s = container_of(a, struct server, app);
	uint64_t pause = pause_edge(&s->pause, now);
	int paused = pause_is_on(&s->pause, now), edge = paused != s->paused;

	s->paused = paused;
	if (edge || now >= s->next_due) {
		s->next_due = NEVER;
		for (struct unit *u = a->units.next; u != &a->units; u = u->next)
			if (!u->dead && !u->frozen)
				tick_unit(container_of(u, struct sunit, unit), now, edge);
	}
	return pause < s->next_due ? pause : s->next_due;
}

static const struct app_ops ops = {
	.accepted = accepted,
	.offer = server_offer,
	.stop = stop,
	.go = go,
	.save = server_save,
	.load = server_load,
	.destroy = destroy,
	.tick = tick,
};

enum {
	OPT_UDP_PORT = APP_OPTION_END,
	OPT_RATE,
	OPT_MAX_LEN,
	OPT_PAUSE_READ,
	OPT_ADD,
	OPT_IDLE,
};

static const struct option options[] = {
	APP_OPTIONS,
	{ "udp-port", required_argument, NULL, OPT_UDP_PORT },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "max-len", required_argument, NULL, OPT_MAX_LEN },
	{ "pause-read", required_argument, NULL, OPT_PAUSE_READ },
	{ "add", required_argument, NULL, OPT_ADD },
	{ "idle", no_argument, NULL, OPT_IDLE },
	{ 0 },
};

static int parse_extra(enum extra *extra, const char *text)
{
	static const char *const names[] = { "", "listen", "mptcp", "not-connected" };

	for (int i = EXTRA_LISTEN; i <= EXTRA_NOT_CONNECTED; i++) {
		if (!strcmp(text, names[i])) {
			*extra = (enum extra)i;
			return 0;
		}
	}
	return -1;
}

static int parse_option(struct server *s, int option, const char *value)
{
	uint64_t port;

	switch (option) {
	case OPT_UDP_PORT:
		if (number_parse(&port, value, UINT16_MAX))
			return -1;
		s->udp_port = (uint16_t)port;
		return 0;
	case OPT_RATE:
		return number_parse(&s->rate, value, 1000000);
	case OPT_MAX_LEN:
		return number_parse(&s->max_len, value, STREAM_MAX) || s->max_len < STREAM_MIN;
	case OPT_PAUSE_READ:
		return pause_parse(&s->pause, value);
	case OPT_ADD:
		return parse_extra(&s->extra, value);
	case OPT_IDLE:
		s->idle = 1;
		return 0;
	}
	return app_option(&s->app, option, value);
}

int main(int argc, char **argv)
{
	static struct server s;
	int option;

	app_init(&s.app, &ops, "probe");
	s.rate = 100;
	s.max_len = 4096;
	s.next_due = NEVER;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (!parse_option(&s, option, optarg))
			continue;
		fputs("usage: probe-server --listen ADDR --port P [OPTION]...\n" APP_USAGE
		      "  --udp-port Q       local port of units' UDP sockets\n"
		      "  --rate N           messages/s and connection; 0: as fast as possible;\n"
		      "                     default 100\n"
		      "  --max-len N        longest message (64..65536, default 4096)\n"
		      "  --pause-read MS/EVERY  of every EVERY ms do not read for MS\n"
		      "  --add listen|mptcp|not-connected  offer such a socket with each unit\n"
		      "  --idle             send answers only\n",
		      stderr);
		return 2;
	}
	return app_run(&s.app);
}
