// SPDX-License-Identifier: BSD-2-Clause
/*
 * The life of a unit as libferry's callbacks tell it: offered, quiesced, gone or come. Knows
 * nothing of what is in a unit; prints one event for each step.
 *
 * A unit that was frozen when the agent died stays frozen, since the agent may have left its
 * sockets in repair; the next agent says whether it lives here or has gone.
 *
 * Invariant: a unit without a ferry handle is never moved, and is served like any other.
 */
#include "app_unit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UUID_TEXT 37
#define STATE_MAGIC 0x70726f62u

void app_unit_add(struct app *a, struct unit *u)
{
	u->prev = a->units.prev;
	u->next = &a->units;
	u->prev->next = u;
	a->units.prev = u;
}

void app_unit_remove(struct unit *u)
{
	app_withdraw(u);
	u->dead = 1;
}

void app_units_reap(struct app *a)
{
	struct unit *u = a->units.next, *next;

	for (; u != &a->units; u = next) {
		next = u->next;
		if (!u->dead)
			continue;
		u->prev->next = u->next;
		u->next->prev = u->prev;
		a->ops->destroy(a, u);
	}
}

static const char *uuid_text(const uint8_t *id, char out[UUID_TEXT])
{
	char *at = out;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		at += sprintf(at, "%02x", id[i]);
	}
	return out;
}

/* reason may be NULL. */
static void unit_event(const char *name, const struct unit *u, const char *reason)
{
	char uuid[UUID_TEXT] = "";

	if (u->ferry)
		uuid_text(ferry_unit_uuid(u->ferry), uuid);
	app_event(name, "\"unit\":\"%s\",\"id\":%" PRIu64 "%s%s%s,\"t_ns\":%" PRIu64, uuid, u->id,
		  reason ? ",\"reason\":\"" : "", reason ? reason : "", reason ? "\"" : "",
		  now_ns());
}

void app_offer(struct app *a, struct unit *u, const int *fds, const char *const *roles,
	       unsigned int n)
{
	int err;

	if (!a->ferry || u->ferry)
		return;
	err = ferry_offer(a->ferry, fds, roles, n, u, &u->ferry);
	if (err) {
		u->ferry = NULL;
		unit_event("refused", u, strerror(-err));
	}
}

void app_withdraw(struct unit *u)
{
	if (u->ferry)
		ferry_withdraw(u->ferry);
	u->ferry = NULL;
}

static void thaw(struct app *a, struct unit *u)
{
	u->frozen = 0;
	a->ops->go(a, u);
}

static void unit_offered(struct ferry_unit *fu, const char *reason, void *arg)
{
	struct unit *u = ferry_unit_data(fu);

	unit_event(reason ? "refused" : "offered", u, reason);
	if (reason)
		u->ferry = NULL;
	if (u->frozen)
		thaw(arg, u);
}

static int answer_quiesce(struct app *a, struct unit *u)
{
	struct blob b = { 0 };
	int err = -ENOMEM;

	blob_put_u32(&b, STATE_MAGIC);
	blob_put_u64(&b, u->id);
	a->ops->save(a, u, &b);
	while (!b.bad && b.len < a->state_size)
		blob_put(&b, "", 1);
	if (!b.bad)
		err = ferry_ready(u->ferry, b.data, b.len);
	blob_free(&b);
	return err;
}

static void unit_quiesce(struct ferry_unit *fu, void *arg)
{
	struct unit *u = ferry_unit_data(fu);
	struct app *a = arg;
	int err;

	u->frozen = 1;
	a->ops->stop(a, u);
	err = answer_quiesce(a, u);
	if (!err) {
		unit_event("quiesced", u, NULL);
		return;
	}
	unit_event("quiesce-failed", u, strerror(-err));
	ferry_refuse(fu);
	thaw(a, u);
}

static void unit_aborted(struct ferry_unit *fu, const char *reason, void *arg)
{
	struct unit *u = ferry_unit_data(fu);

	unit_event("aborted", u, reason);
	if (u->frozen)
		thaw(arg, u);
}

static void unit_committed(struct ferry_unit *fu, void *arg)
{
	struct unit *u = ferry_unit_data(fu);
	struct app *a = arg;

	unit_event("committed", u, NULL);
	u->ferry = NULL;
	/* The library frees its half when this returns; ours goes with its descriptors now. */
	a->ops->stop(a, u);
	u->dead = 1;
}

static void unit_arrived(struct ferry_unit *fu, void *arg)
{
	struct blob_reader r = { 0 };
	struct app *a = arg;
	struct unit *u = NULL;
	uint64_t id;

	r.data = ferry_unit_state(fu, &r.left);
	if (blob_get_u32(&r) != STATE_MAGIC)
		r.bad = 1;
	id = blob_get_u64(&r);
	if (!r.bad)
		u = a->ops->load(a, fu, &r);
	if (!u) {
		/* Nothing that follows would be worth a check: the test must fail, and loudly. */
		app_event("error", "\"what\":\"arrived with a state that makes no sense\"");
		a->failed = 1;
		return;
	}
	u->id = id;
	u->ferry = fu;
	ferry_unit_set_data(fu, u);
	app_unit_add(a, u);
	unit_event("arrived", u, NULL);
	a->ops->go(a, u);
}

const struct ferry_ops app_ferry_ops = {
	.connected = app_connected,
	.offered = unit_offered,
	.quiesce = unit_quiesce,
	.aborted = unit_aborted,
	.committed = unit_committed,
	.arrived = unit_arrived,
};
