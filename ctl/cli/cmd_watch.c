// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferry watch: what closed listeners lost, as it happens; changes nothing. With -j a line an event.
 * ferry watch show: what another one counts, or since when nobody does.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "base/fault.h"
#include "cli/cli.h"
#include "listener/account.h"
#include "listener/ledger.h"

#define DEFAULT_NAME "watch"
#define BEAT_MS 500 /* how often a reader sees that it is still alive */

static volatile sig_atomic_t stopped;

struct watch {
	struct cli *cli;
	uint64_t netns; /* ours, of which nothing is said */
	json_t *rows;   /* NULL: text */
};

struct arguments {
	const char *name;
	bool clients;
	uint64_t seconds;
};

static void on_signal(int signal)
{
	(void)signal;
	stopped = 1;
}

static uint64_t own_netns(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size);
	return cookie;
}

static int parse(struct cli *c, int argc, char **argv, struct arguments *a)
{
	*a = (struct arguments){ .name = DEFAULT_NAME };
	for (int i = 0; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		char *end;

		if (!strcmp(argv[i], "--tuples")) {
			a->clients = true;
		} else if (!strcmp(argv[i], "--seconds")) {
			a->seconds = strtoul(value, &end, 10);
			if (!a->seconds || *end || a->seconds > UINT32_MAX)
				return cli_error(c, EXIT_USAGE, "usage",
						 "--seconds: 1 or more, not '%s'", value);
			i++;
		} else if (!strcmp(argv[i], "--name")) {
			if (!name_valid(value))
				return cli_error(c, EXIT_USAGE, "usage", "--name: no '%s'", value);
			a->name = argv[++i];
		} else {
			return cli_error(c, EXIT_USAGE, "usage",
					 "[--tuples] [--seconds N] [--name NAME] is wanted");
		}
	}
	return EXIT_OK;
}

static json_t *counts_json(const __u64 n[WITNESS_COUNT])
{
	json_t *o = json_object();

	for (int i = 0; i < WITNESS_COUNT; i++)
		json_object_set_new(o, account_counts[i], json_integer((json_int_t)n[i]));
	json_object_set_new(o, "lost", json_integer((json_int_t)account_lost(n)));
	return o;
}

static void put_address(json_t *o, const struct witness_key *key)
{
	char text[ADDR_TEXT];

	json_object_set_new(o, "netns", json_integer((json_int_t)key->netns));
	json_object_set_new(o, "address", json_string(addr_text(key->addr, text)));
	json_object_set_new(o, "port", json_integer(key->port));
}

static json_t *close_json(const struct witness_close *r)
{
	char comm[WITNESS_COMM + 1];
	json_t *o = counts_json(r->n);

	account_comm(r->comm, comm);
	put_address(o, &r->key);
	json_object_set_new(o, "socket", json_integer((json_int_t)r->cookie));
	json_object_set_new(o, "pid", json_integer(r->pid));
	json_object_set_new(o, "comm", json_string(comm));
	json_object_set_new(o, "way", json_string(r->way < ARRAY_SIZE(account_ways) ?
							  account_ways[r->way] :
							  ""));
	json_object_set_new(o, "at_ns", json_integer((json_int_t)r->at));
	return o;
}

/* One line, at once: who reads it may be a program. */
static void event(struct watch *w, const char *name, json_t *o)
{
	json_object_set_new(o, "event", json_string(name));
	cli_print(w->cli, o, NULL, NULL, 0);
	fflush(stdout);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void on_close(const struct witness_close *c, void *data)
{
	struct watch *w = data;
	char text[ACCOUNT_SENTENCE];

	account_sentence(c, w->netns, text);
	if (w->cli->json) {
		json_t *o = close_json(c);

		json_object_set_new(o, "text", json_string(text));
		event(w, "close", o);
	} else if (c->n[WITNESS_QUEUED] || c->n[WITNESS_HALF_OPEN]) {
		say(text);
	}
}

static void on_client(const struct witness_client *c, void *data)
{
	struct watch *w = data;
	char text[ACCOUNT_SENTENCE], addr[ADDR_TEXT];
	json_t *o;

	if (!w->cli->json) {
		say(account_client(c, w->netns, text));
		return;
	}
	o = json_object();
	put_address(o, &c->key);
	json_object_set_new(o, "socket", json_integer((json_int_t)c->cookie));
	json_object_set_new(o, "local", json_string(addr_text(c->local, addr)));
	json_object_set_new(o, "client", json_string(addr_text(c->remote, addr)));
	json_object_set_new(o, "client_port", json_integer(c->remote_port));
	json_object_set_new(o, "fate", json_string(account_counts[c->count % WITNESS_COUNT]));
	event(w, "client", o);
}

static void on_row(const struct witness_close *row, void *data)
{
	struct watch *w = data;
	char where[ACCOUNT_ADDRESS], text[ACCOUNT_SENTENCE];

	if (w->rows)
		json_array_append_new(w->rows, close_json(row));
	else if (row->n[WITNESS_QUEUED])
		printf("%s: %s\n", account_address(&row->key, w->netns, where),
		       account_sum(row->n, text));
}

/* What keeps the sum from being the whole. */
static void put_doubts(json_t *o, const struct witness_state *s)
{
	json_object_set_new(o, "no_row", json_integer((json_int_t)s->no_row));
	json_object_set_new(o, "unseen", json_integer((json_int_t)s->unseen));
	json_object_set_new(o, "unsaid", json_integer((json_int_t)s->unsaid));
	json_object_set_new(o, "strays", json_integer((json_int_t)s->strays));
}

static void say_doubts(const struct witness_state *s)
{
	if (s->unseen)
		printf("%" PRIu64 " closes are not counted: too many at once\n", (uint64_t)s->unseen);
	if (s->no_row)
		printf("%" PRIu64 " closes are in the sum only: more than %d addresses\n",
		       (uint64_t)s->no_row, WITNESS_ROWS);
	if (s->unsaid)
		printf("%" PRIu64 " sentences are missing: they came faster than they were read\n",
		       (uint64_t)s->unsaid);
	if (s->strays)
		printf("%" PRIu64 " connections were reset in no close that was seen\n",
		       (uint64_t)s->strays);
}

static void sum_up(struct watch *w, const struct ledger *l, uint64_t since)
{
	const struct witness_state *s = l->state;
	char text[ACCOUNT_SENTENCE];
	json_t *o;

	if (!w->cli->json) {
		printf("in %.1f s: %s\n", (double)(boottime_ns() - since) / (double)SEC_NS,
		       account_sum(s->n, text));
		ledger_rows(l, on_row, w);
		say_doubts(s);
		return;
	}
	o = counts_json(s->n);
	w->rows = json_array();
	ledger_rows(l, on_row, w);
	json_object_set_new(o, "rows", w->rows);
	put_doubts(o, s);
	json_object_set_new(o, "missed", json_integer((json_int_t)ledger_missed(l)));
	json_object_set_new(o, "since_ns", json_integer((json_int_t)since));
	event(w, "end", o);
}

/* Until a signal, or the time is over. 0 or -errno. */
static int follow(struct ledger *l, uint64_t seconds)
{
	uint64_t end = boottime_ns() + seconds * SEC_NS, now;
	int r = 0;

	while (!stopped && (r >= 0 || r == -EINTR)) {
		int ms = BEAT_MS;

		now = boottime_ns();
		if (seconds && now >= end)
			return 0;
		if (seconds && end - now < BEAT_MS * MSEC_NS)
			ms = (int)((end - now) / MSEC_NS) + 1;
		r = ledger_poll(l, ms);
	}
	return r == -EINTR || r > 0 ? 0 : r;
}

static int run(struct watch *w, struct ledger *l, const struct arguments *a)
{
	uint64_t since;
	int r = ledger_start(l);

	if (r)
		return cli_error(w->cli, EXIT_FAILED, "no-witness", "%s", l->error);
	since = l->state->begun;
	if (!l->pinned)
		fprintf(stderr, "ferry: ferry watch show will not know of this: %s\n", l->error);
	if (w->cli->json)
		event(w, "watching", json_pack("{s:s, s:I, s:b, s:i}", "name", a->name, "since_ns",
					       (json_int_t)since, "pinned", l->pinned, "pid",
					       (int)getpid()));
	else
		fprintf(stderr, "ferry: watching all TCP listeners of this machine\n");
	r = follow(l, a->seconds);
	if (!r)
		r = ledger_poll(l, 0); /* what came last */
	sum_up(w, l, since);
	return r < 0 && r != -EINTR ? cli_error(w->cli, EXIT_FAILED, "no-witness",
						 "the witness cannot be read: %s", strerror(-r)) :
				       EXIT_OK;
}

int cmd_watch(struct cli *c, int argc, char **argv)
{
	struct sigaction end = { .sa_handler = on_signal };
	struct watch w = { .cli = c, .netns = own_netns() };
	struct arguments a;
	struct ledger l;
	int r = parse(c, argc, argv, &a), code;

	if (r || fault_init())
		return r ? r : EXIT_USAGE;
	r = ledger_open(&l, a.name, a.clients);
	if (r)
		return cli_error(c, EXIT_FAILED, r == -EBUSY ? "busy" : "no-witness", "%s", l.error);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	l.closed = on_close;
	l.client = on_client;
	l.data = &w;
	code = run(&w, &l, &a);
	ledger_close(&l);
	return code;
}

static const char *when(uint64_t boottime, char text[32])
{
	time_t at = time(NULL) - (time_t)((boottime_ns() - boottime) / SEC_NS);
	struct tm tm;

	strftime(text, 32, "%Y-%m-%d %H:%M:%S", localtime_r(&at, &tm));
	return text;
}

static void show_text(struct watch *w, const struct ledger_view *v)
{
	char begun[32], since[32], text[ACCOUNT_SENTENCE];

	when(v->state.begun, begun);
	if (v->watching)
		printf("watching since %s (pid %u): %s\n", begun, v->state.pid,
		       account_sum(v->state.n, text));
	else
		printf("not watching since %s; from %s until then: %s\n", when(v->since, since),
		       begun, account_sum(v->state.n, text));
	ledger_view_rows(v, on_row, w);
	say_doubts(&v->state);
}

static void show_json(struct watch *w, const struct ledger_view *v, const char *name)
{
	json_t *o = counts_json(v->state.n);

	w->rows = json_array();
	ledger_view_rows(v, on_row, w);
	json_object_set_new(o, "name", json_string(name));
	json_object_set_new(o, "watching", json_boolean(v->watching));
	json_object_set_new(o, "since_ns", json_integer((json_int_t)v->state.begun));
	json_object_set_new(o, "not_watching_since_ns",
			    v->watching ? json_null() : json_integer((json_int_t)v->since));
	json_object_set_new(o, "pid", json_integer(v->state.pid));
	json_object_set_new(o, "rows", w->rows);
	put_doubts(o, &v->state);
	cli_print(w->cli, o, NULL, NULL, 0);
}

int cmd_watch_show(struct cli *c, int argc, char **argv)
{
	struct watch w = { .cli = c, .netns = own_netns() };
	struct arguments a;
	struct ledger_view v;
	int r = parse(c, argc, argv, &a);

	if (!r && (a.clients || a.seconds))
		r = cli_error(c, EXIT_USAGE, "usage", "ferry watch show [--name NAME]");
	if (r)
		return r;
	r = ledger_view(a.name, &v);
	if (r == -ENOENT)
		return cli_error(c, EXIT_NOT_FOUND, "not-watching",
				 "nobody has watched since this machine was started: ferry watch "
				 "does (its --name is '%s' here)",
				 a.name);
	if (r)
		return cli_error(c, EXIT_FAILED, "no-ledger", LEDGER_ROOT "/%s cannot be read: %s; %s",
				 a.name, strerror(-r),
				 r == -EPROTO ? "another version of ferry has made it" : "be root");
	if (c->json)
		show_json(&w, &v, a.name);
	else
		show_text(&w, &v);
	ledger_view_close(&v);
	return v.watching ? EXIT_OK : EXIT_DEGRADED;
}
