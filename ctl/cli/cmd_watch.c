// SPDX-License-Identifier: BSD-2-Clause
/* ferry watch: what closed listeners lost, as it happens; changes nothing. -j: a line an event. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/fault.h"
#include "cli/watch.h"
#include "listener/account.h"

#define BEAT_MS 500 /* how often a reader sees that it is still alive */

static volatile sig_atomic_t stopped;

static void on_signal(int signal)
{
	(void)signal;
	stopped = 1;
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
		json_t *o = watch_close(c);

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
	watch_put_address(o, &c->key);
	json_object_set_new(o, "socket", json_integer((json_int_t)c->cookie));
	json_object_set_new(o, "local", json_string(addr_text(c->local, addr)));
	json_object_set_new(o, "client", json_string(addr_text(c->remote, addr)));
	json_object_set_new(o, "client_port", json_integer(c->remote_port));
	json_object_set_new(o, "fate", json_string(account_counts[c->count % WITNESS_COUNT]));
	event(w, "client", o);
}

static void sum_up(struct watch *w, const struct ledger *l, uint64_t since)
{
	const struct witness_state *s = l->state;
	char text[ACCOUNT_SENTENCE];
	json_t *o;

	if (!w->cli->json) {
		printf("in %.1f s: %s\n", (double)(boottime_ns() - since) / (double)SEC_NS,
		       account_sum(s->n, text));
		ledger_rows(l, watch_row, w);
		watch_say_doubts(s);
		return;
	}
	o = watch_counts(s->n);
	w->rows = json_array();
	ledger_rows(l, watch_row, w);
	json_object_set_new(o, "rows", w->rows);
	watch_put_doubts(o, s);
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

static int run(struct watch *w, struct ledger *l, const struct watch_arguments *a)
{
	uint64_t since;
	int r = ledger_start(l);

	if (r)
		return cli_error(w->cli, EXIT_FAILED, "no-witness", "%s", l->error);
	since = l->state->begun;
	if (!l->pinned)
		fprintf(stderr, "ferry: ferry watch show will not know of this: %s\n", l->error);
	if (w->cli->json)
		event(w, "watching",
		      json_pack("{s:s, s:I, s:b, s:i}", "name", a->name, "since_ns",
				(json_int_t)since, "pinned", l->pinned, "pid", (int)getpid()));
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
	struct watch w = { .cli = c, .netns = watch_netns() };
	struct watch_arguments a;
	struct ledger l;
	int r = watch_parse(c, argc, argv, &a), code;

	if (r || fault_init())
		return r ? r : EXIT_USAGE;
	r = ledger_open(&l, a.name, a.clients);
	if (r)
		return cli_error(c, EXIT_FAILED, r == -EBUSY ? "busy" : "no-witness", "%s",
				 l.error);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	l.closed = on_close;
	l.client = on_client;
	l.data = &w;
	code = run(&w, &l, &a);
	ledger_close(&l);
	return code;
}
