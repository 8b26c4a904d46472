// SPDX-License-Identifier: BSD-2-Clause
/* The account of what a guard was there for: its program's counts and the witness's; see guard.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/fault.h"
#include "base/log.h"
#include "guard/guard.h"

static void on_close(const struct witness_close *c, void *data)
{
	struct daemon *d = data;
	const struct listener_port at = { .netns = c->key.netns, .port = c->key.port };
	char text[ACCOUNT_SENTENCE];

	if (account_lost(c->n) && guard_find(d, &at))
		log_warning("%s", account_sentence(c, c->key.netns, text));
}

void witness_start(struct daemon *d)
{
	int r = fault(FAULT_NO_WITNESS) ? -EPERM : ledger_open(&d->ledger, NULL, false);

	if (!r && (r = ledger_start(&d->ledger)))
		ledger_close(&d->ledger);
	d->watching = !r;
	d->since = r ? boottime_ns() : d->ledger.state->begun;
	if (r)
		log_warning("what is lost will not be seen: %s", d->ledger.error);
}

void witness_restore(struct daemon *d)
{
	d->watching = !ledger_adopt(&d->ledger);
	if (d->watching) {
		d->since = d->ledger.state->begun;
		return;
	}
	for (int i = 0; i < LEDGER_FD_COUNT; i++)
		close_fd(&d->ledger.fd[i]);
	witness_start(d);
	for (struct guard *g = d->guards; g; g = g->next)
		for (struct group *group = g->groups; group; group = group->next)
			witness_begin(group);
}

static int on_ring(sd_event_source *s, int fd, uint32_t events, void *data)
{
	struct daemon *d = data;

	(void)s, (void)fd, (void)events;
	ledger_poll(&d->ledger, 0);
	return 0;
}

void witness_watch(struct daemon *d)
{
	if (!d->watching)
		return;
	d->ledger.closed = on_close;
	d->ledger.data = d;
	if (sd_event_add_io(d->event, NULL, ledger_poll_fd(&d->ledger), 1 /* EPOLLIN */, on_ring, d) < 0)
		log_warning("losses will be counted, and not logged");
}

/* All closes at the group's address; nothing where there was none. */
static void read_row(const struct group *g, __u64 n[WITNESS_COUNT])
{
	struct witness_key key = { .netns = g->guard->at.netns, .port = (__u16)g->guard->at.port };
	struct witness_close row;
	uint16_t port;

	memset(n, 0, WITNESS_COUNT * sizeof(*n));
	if (g->guard->d->watching && !addr_from_sockaddr(&g->like.addr, key.addr, &port) &&
	    !ledger_row(&g->guard->d->ledger, &key, &row))
		memcpy(n, row.n, sizeof(row.n));
}

void witness_begin(struct group *g)
{
	read_row(g, g->before);
	group_count(g, g->counted);
}

/* Since its account began. */
static void since_then(struct group *g, __u64 n[WITNESS_COUNT], uint64_t counts[LISTENER_COUNT])
{
	read_row(g, n);
	group_count(g, counts);
	for (int i = 0; i < WITNESS_COUNT; i++)
		n[i] -= g->before[i];
	for (int i = 0; i < LISTENER_COUNT; i++)
		counts[i] -= g->counted[i];
}

struct account witness_account(struct group *g)
{
	uint64_t counts[LISTENER_COUNT];
	__u64 n[WITNESS_COUNT];

	since_then(g, n, counts);
	return account_of(n, counts);
}

void witness_end(struct group *g, const struct account *before)
{
	struct account a = witness_account(g);

	/* the kernel asks nobody about the last ones of a group */
	a.cancelled += a.lost - before->lost;
	a.lost = before->lost;
	account_add(&g->guard->d->gone, &a);
}

json_t *witness_json(const struct account *a)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "queued", (json_int_t)a->queued,
			 "migrated_alive", (json_int_t)a->migrated_alive, "migrated_dead",
			 (json_int_t)a->migrated_dead, "held", (json_int_t)a->held, "cancelled",
			 (json_int_t)a->cancelled, "lost", (json_int_t)a->lost, "unexplained",
			 (json_int_t)a->unexplained);
}

json_t *witness_describe(struct group *g)
{
	struct daemon *d = g->guard->d;
	uint64_t counts[LISTENER_COUNT];
	__u64 n[WITNESS_COUNT];
	struct account a;
	json_t *o;

	if (!d->watching)
		return json_pack("{s:b,s:I,s:s}", "watching", 0, "since_ns", (json_int_t)d->since,
				 "why", d->ledger.error);
	since_then(g, n, counts);
	a = account_of(n, counts);
	o = witness_json(&a);
	json_object_set_new(o, "watching", json_true());
	json_object_set_new(o, "since_ns", json_integer((json_int_t)d->since));
	json_object_set_new(o, "closes", json_integer((json_int_t)n[WITNESS_CLOSES]));
	/* what keeps it from being the whole, of all listeners of the machine */
	json_object_set_new(o, "strays", json_integer((json_int_t)d->ledger.state->strays));
	json_object_set_new(o, "unseen", json_integer((json_int_t)d->ledger.state->unseen));
	json_object_set_new(o, "missed", json_integer((json_int_t)ledger_missed(&d->ledger)));
	return o;
}
