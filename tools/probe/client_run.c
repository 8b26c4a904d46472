// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-client's run: opens all, says when all is ready, keeps the clock, ends politely.
 *
 * Never reconnects to hide something: a connection that broke stays in the report as broken, and
 * one more is opened in its place, once, and counted.
 *
 * Invariant: once `ending` is set, everything is over by `deadline`.
 */
#include "client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define END_DEADLINE (10 * NSEC_PER_SEC)
#define UDP_DRAIN (2 * NSEC_PER_SEC)
#define SILENCE_CHECK (100 * NSEC_PER_MSEC)
/* Looking after all costs with their number: not for every event. */
#define TEND_INTERVAL (NSEC_PER_MSEC / 4)

/* Opens a unit's sockets; 0 or -errno. */
static int unit_open(struct client *c, uint32_t tcp, enum unit_udp udp, int again)
{
	struct cunit *u = calloc(1, sizeof(*u)), **all;
	int err = 0;

	all = realloc(c->all, (c->n_all + 1) * sizeof(*all));
	if (all)
		c->all = all;
	if (!u || !all)
		return -ENOMEM;
	c->all[c->n_all++] = u;
	u->client = c;
	u->id = ++c->last_unit;
	u->udp_kind = udp;
	u->udp.unit = u;
	u->udp.source.fd = -1;
	u->conns = calloc(tcp, sizeof(*u->conns));
	if (!u->conns)
		return -ENOMEM;
	if (udp != UNIT_UDP_NONE)
		err = udp_open(u);
	u->n = tcp;
	for (uint32_t i = 0; i < tcp && !err; i++)
		err = conn_open(c, u, i, again);
	return err;
}

struct tally {
	uint64_t over, waiting; /* connections */
	uint64_t next;		/* when something is due */
	uint64_t unanswered;	/* datagrams */
};

static void check_silence(struct conn *c, uint64_t now)
{
	const struct client *cl = c->client;
	int answers = c->state < STREAMING || !cl->idle;

	if (!conn_is_over(c) && answers && !cl->paused &&
	    now > c->last_octets + cl->timeout_ms * NSEC_PER_MSEC)
		conn_break(c, BROKEN_TIMEOUT);
}

static void tend_conn(struct conn *c, uint64_t now, int check, struct tally *t)
{
	if (conn_due(c) <= now)
		conn_go(c, now);
	if (check)
		check_silence(c, now);
	if (conn_due(c) < t->next)
		t->next = conn_due(c);
	t->over += conn_is_over(c);
	t->waiting += c->state < STREAMING;
	if (c->state == BROKEN && !c->again && !c->replaced && !c->client->stopping) {
		c->replaced = 1;
		c->client->reconnects++;
		if (unit_open(c->client, 1, UNIT_UDP_NONE, 1))
			c->client->reconnect_failed++;
	}
}

/* Looks after every connection; a broken one gets its successor here. */
static void tend(struct client *c, uint64_t now, struct tally *t)
{
	int check = now >= c->next_silence_check;

	if (check)
		c->next_silence_check = now + SILENCE_CHECK;
	*t = (struct tally){ .next = c->next_silence_check };
	for (uint64_t i = 0; i < c->n_all; i++) {
		struct cunit *u = c->all[i];

		for (uint32_t j = 0; j < u->n; j++)
			tend_conn(u->conns[j], now, check, t);
		if (u->udp.source.fd < 0)
			continue;
		udp_go(&u->udp, now);
		if (udp_due(&u->udp) < t->next)
			t->next = udp_due(&u->udp);
		t->unanswered += u->udp.n - u->udp.answered;
	}
}

static void for_each_conn(struct client *c, void (*fn)(struct conn *c, uint64_t now))
{
	uint64_t now = now_ns();

	for (uint64_t i = 0; i < c->n_all; i++)
		for (uint32_t j = 0; j < c->all[i]->n; j++)
			if (!conn_is_over(c->all[i]->conns[j]))
				fn(c->all[i]->conns[j], now);
}

static void pause_begins(struct conn *c, uint64_t now)
{
	conn_heard(c, now, 0);
	conn_go(c, now);
}

static void pause_ends(struct conn *c, uint64_t now)
{
	conn_heard(c, now, 1);
	conn_go(c, now);
}

static void break_late(struct conn *c, uint64_t now)
{
	(void)now;
	conn_break(c, BROKEN_TIMEOUT);
}

/* First the datagrams stop and their answers come in, then the connections end. */
static void stop(struct client *c, uint64_t now)
{
	if (c->stopping)
		return;
	c->stopping = 1;
	c->end_at = now + UDP_DRAIN;
	c->deadline = now + END_DEADLINE;
}

static uint64_t earliest(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* One round; the time until which to wait, 0: all is over. */
static uint64_t step(struct client *c)
{
	uint64_t now = now_ns(), total = 0;
	int paused = pause_is_on(&c->pause, now);
	struct tally t;

	if (now < c->next_tend)
		return c->next_tend;
	c->next_tend = now + TEND_INTERVAL;
	if (paused != c->paused) {
		c->paused = paused;
		for_each_conn(c, paused ? pause_begins : pause_ends);
	}
	tend(c, now, &t);
	for (uint64_t i = 0; i < c->n_all; i++)
		total += c->all[i]->n;
	if (t.over == total)
		return 0;
	if (!c->ready && !t.waiting && !t.over) {
		c->ready = 1;
		c->started = now;
		if (c->seconds)
			c->stop_at = now + c->seconds * NSEC_PER_SEC;
		puts("{\"event\":\"ready\"}");
		return now;
	}
	if (now >= c->stop_at)
		stop(c, now);
	if (c->stopping && !c->ending && (!t.unanswered || now >= c->end_at)) {
		c->ending = 1;
		for_each_conn(c, conn_go);
	}
	if (now >= c->deadline)
		for_each_conn(c, break_late);
	t.next = earliest(t.next, earliest(c->stop_at, c->deadline));
	return earliest(t.next, pause_edge(&c->pause, now));
}

static void signal_ready(struct source *s, uint32_t events)
{
	struct client *c = container_of(s, struct client, signals);
	struct signalfd_siginfo info;

	(void)events;
	while (read(s->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			report(c, REPORT_SHORT);
		else if (info.ssi_signo == SIGUSR2)
			report(c, REPORT_WITH_LISTS);
		else
			stop(c, now_ns());
	}
}

/* A line `stop` on stdin; its end stops nothing. */
static void input_ready(struct source *s, uint32_t events)
{
	struct client *c = container_of(s, struct client, input);
	static char line[16];
	static size_t n;
	char octet;

	(void)events;
	if (read(s->fd, &octet, 1) != 1) {
		loop_watch(c->loop, s, 0);
	} else if (octet == '\n') {
		if (n == 4 && !memcmp(line, "stop", 4))
			stop(c, now_ns());
		n = 0;
	} else if (n < sizeof(line)) {
		line[n++] = octet;
	}
}

static int prepare(struct client *c)
{
	sigset_t set;

	raise_file_limit();
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	c->loop = loop_open();
	c->signals = (struct source){ .fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC),
				      .ready = signal_ready };
	c->input = (struct source){ .fd = STDIN_FILENO, .ready = input_ready };
	c->gaps = calloc(GAPS_MAX, sizeof(*c->gaps));
	if (c->loop < 0 || !c->gaps || loop_watch(c->loop, &c->signals, EPOLLIN))
		return -EIO;
	/* A stdin that cannot be waited for (a file) has nothing to say. */
	loop_watch(c->loop, &c->input, EPOLLIN);
	/* Ids that no other client has, so that a mix-up between clients shows: units below 2^52,
	 * connections in 16 bits of their own. */
	if (getrandom(&c->last_unit, sizeof(c->last_unit), 0) != sizeof(c->last_unit))
		return -EIO;
	c->last_conn = (uint32_t)c->last_unit << 16;
	c->last_unit &= (1ULL << 52) - (1ULL << 20);
	c->stop_at = c->deadline = NEVER;
	c->started = now_ns();
	return 0;
}

int client_run(struct client *c)
{
	uint64_t until;
	int err = prepare(c);

	for (uint64_t i = 0; i < c->units && !err; i++)
		err = unit_open(c, (uint32_t)c->tcp, c->udp, 0);
	if (err) {
		fprintf(stderr, "probe-client: %s\n", strerror(-err));
		return EXIT_FAILURE;
	}
	while ((until = step(c)))
		if (loop_wait(c->loop, until))
			return EXIT_FAILURE;
	return report(c, REPORT_FINAL) ? EXIT_SUCCESS : EXIT_FAILURE;
}
