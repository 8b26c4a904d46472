// SPDX-License-Identifier: BSD-2-Clause
/*
 * The engine: walks an origin's move through the table and ends what fails, is late, or has lost
 * its peer or its application. Decides nothing about packets or sockets.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "agent/app.h"
#include "agent/space.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/util.h"
#include "move/dry_run.h"
#include "move/move.h"
#include "move/refusal.h"

#define RESEND_MS 200

const struct stage stages[STAGE_COUNT] = {
	[STAGE_BORROW] = { "borrow", 1000, origin_borrow, 0, NULL, "app-gone" },
	[STAGE_PREFLIGHT] = { "preflight", 10000, origin_preflight, MSG_PREFLIGHT,
			      destination_preflight, "timeout" },
	[STAGE_QUIESCE] = { "quiesce", 5000, origin_quiesce, 0, NULL, "app-not-quiescent" },
	[STAGE_FENCE] = { "fence", 0, origin_fence, 0, NULL, NULL },
	[STAGE_EXTRACT] = { "extract", 0, origin_extract, 0, NULL, NULL },
	[STAGE_PREPARE] = { "prepare", 1000, origin_prepare, MSG_PREPARE, destination_prepare,
			    "timeout" },
	[STAGE_HOLD] = { "hold", 0, origin_hold, 0, NULL, NULL },
	[STAGE_FLIP] = { "flip", 0, origin_flip, 0, NULL, NULL },
	[STAGE_THAW] = { "thaw", RESEND_MS, origin_thaw, MSG_FLIPPED, destination_thaw, NULL },
	[STAGE_CLOSE] = { "close", 0, origin_close, 0, NULL, NULL },
	[STAGE_CONVERGE] = { "converge", 0, origin_converge, 0, NULL, NULL },
};

/* The order of the table, and those of two negative controls. */
static enum stage_id stage_at(unsigned int step)
{
	static const enum stage_id orders[][STAGE_COUNT] = {
		{ STAGE_BORROW, STAGE_PREFLIGHT, STAGE_QUIESCE, STAGE_FENCE, STAGE_EXTRACT,
		  STAGE_PREPARE, STAGE_HOLD, STAGE_FLIP, STAGE_THAW, STAGE_CLOSE, STAGE_CONVERGE },
		{ STAGE_BORROW, STAGE_PREFLIGHT, STAGE_QUIESCE, STAGE_FENCE, STAGE_EXTRACT,
		  STAGE_PREPARE, STAGE_CLOSE, STAGE_HOLD, STAGE_FLIP, STAGE_THAW, STAGE_CONVERGE },
		{ STAGE_BORROW, STAGE_PREFLIGHT, STAGE_QUIESCE, STAGE_FENCE, STAGE_EXTRACT,
		  STAGE_FLIP, STAGE_HOLD, STAGE_PREPARE, STAGE_THAW, STAGE_CLOSE, STAGE_CONVERGE },
	};

	return orders[fault(FAULT_CLOSE_BEFORE_FLIP)   ? 1 :
		      fault(FAULT_FLIP_BEFORE_RESTORE) ? 2 :
							 0][step];
}

bool move_in(const struct move *m, enum stage_id stage)
{
	return m->origin && stage_at(m->step) == stage;
}

int move_refuse(struct move *m, const char *refusal, const char *detail, ...)
{
	va_list args;

	m->refusal = refusal;
	va_start(args, detail);
	vsnprintf(m->detail, sizeof(m->detail), detail, args);
	va_end(args);
	for (char *p = m->detail; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?'; /* a peer's words go to the log and into JSON */
	return STAGE_FAILED;
}

void move_address(const struct move *m, Peer__Move *msg)
{
	peer__move__init(msg);
	msg->uuid.data = (uint8_t *)m->uuid;
	msg->uuid.len = 16;
	msg->move_id.data = (uint8_t *)m->id;
	msg->move_id.len = 16;
	msg->epoch = m->epoch;
}

int move_send(struct move *m, enum message type)
{
	Peer__Move msg;

	move_address(m, &msg);
	msg.local_ns = m->local_ns;
	msg.newer = m->newer;
	msg.lost = m->lost_there;
	if (m->refusal) {
		msg.refusal = (char *)m->refusal;
		msg.detail = m->detail;
	}
	return m->channel ? channel_send(m->channel, type, &msg, NULL, 0) : -ENOTCONN;
}

static void disarm(struct move *m)
{
	m->deadline = sd_event_source_disable_unref(m->deadline);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg);

int move_arm(struct move *m, uint32_t ms)
{
	int r;

	disarm(m);
	r = sd_event_add_time_relative(m->agent->event, &m->deadline, CLOCK_MONOTONIC, ms * 1000ULL,
				       1, on_deadline, m);
	if (r < 0)
		log_error("no timer for a move: %s", strerror(-r));
	return r < 0 ? move_refuse(m, "no-memory", "no timer") : 0;
}

struct move *move_new(struct agent *a, bool origin, const uint8_t uuid[16], unsigned int count)
{
	struct move *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->agent = a;
	m->origin = origin;
	m->command = m->bundle = -1;
	m->count = count;
	memcpy(m->uuid, uuid, 16);
	m->fds = calloc(count, sizeof(*m->fds));
	m->images = calloc(count, sizeof(*m->images));
	m->next = a->moves;
	a->moves = m;
	if (!m->fds || !m->images) {
		m->count = 0;
		move_free(m);
		return NULL;
	}
	for (unsigned int i = 0; i < count; i++)
		m->fds[i] = -1;
	return m;
}

void move_free(struct move *m)
{
	struct move **at = &m->agent->moves;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	disarm(m);
	for (unsigned int i = 0; i < m->count; i++) {
		close_fd(&m->fds[i]);
		repair_image_clear(&m->images[i]);
	}
	if (m->origin && m->unit)
		m->unit->move = NULL;
	close_fd(&m->bundle);
	close_fd(&m->command);
	unit_unmake(m->agent, m->spare);
	space_release(m->agent, m->space);
	free(m->dry);
	free(m->fds);
	free(m->images);
	free(m->state);
	free(m);
}

void move_fail(struct move *m)
{
	char uuid[UUID_TEXT];

	if (m->dry) {
		dry_run_fail(m);
		return;
	}
	log_warning("move of %s %s node %u failed: %s%s%s", uuid_text(m->uuid, uuid),
		    m->origin ? "to" : "from", m->peer, m->refusal, m->detail[0] ? ": " : "",
		    m->detail);
	if (m->origin) {
		origin_abort(m);
		command_moved(TAKE_FD(m->command), m, m->refusal, m->detail);
	} else {
		move_send(m, MSG_REFUSED);
		destination_discard(m);
	}
	move_free(m);
}

/* Runs stages until one waits, fails, or the last is done. */
static void run(struct move *m)
{
	unsigned int end = m->dry ? DRY_RUN_STEPS : STAGE_COUNT;
	int r = STAGE_DONE;

	disarm(m);
	while (r == STAGE_DONE && m->step < end) {
		const struct stage *s = &stages[stage_at(m->step)];

		fault_die(FAULT_DIE_ORIGIN, m->step);
		r = s->origin(m);
		if (r == STAGE_WAIT && s->deadline_ms && move_arm(m, s->deadline_ms) && !m->flipped)
			r = STAGE_FAILED; /* no wait without a deadline */
		if (r == STAGE_AGAIN) {
			m->again = true;
			m->step = STAGE_EXTRACT; /* the same step in every order */
			r = STAGE_DONE;
		} else if (r == STAGE_DONE) {
			m->step++;
		}
	}
	if (r == STAGE_FAILED) {
		move_fail(m);
	} else if (r == STAGE_DONE && m->dry) {
		dry_run_end(m);
	} else if (r == STAGE_DONE) {
		command_moved(TAKE_FD(m->command), m, NULL, NULL);
		move_free(m);
	}
}

void move_advance(struct move *m, enum stage_id stage)
{
	if (!move_in(m, stage))
		return;
	m->step++;
	run(m);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
	struct move *m = arg;

	(void)s, (void)usec;
	if (!m->origin) {
		if (m->prepared) {
			move_in_doubt(m);
			return 0;
		}
		move_refuse(m, "timeout", "the origin went silent");
		move_fail(m);
		return 0;
	}
	if (m->flipped) { /* no way back: repeat it until the destination has it */
		m->channel = nodes_channel(m->agent, m->peer);
		run(m);
		return 0;
	}
	move_refuse(m, stages[stage_at(m->step)].late, "in stage %s",
		    stages[stage_at(m->step)].name);
	move_fail(m);
	return 0;
}

/* Packets with exactly its epoch are stamped by who has flipped, or by an ingress told of it. */
static bool proven(const struct move *m)
{
	return m->told_flip || unit_record(&m->agent->dp, m->index)->lost != m->lost_before;
}

void move_in_doubt(struct move *m)
{
	m->channel = nodes_channel(m->agent, m->peer);
	if (m->app && proven(m)) {
		destination_thaw(m, NULL, NULL, 0);
		move_free(m);
		return;
	}
	move_send(m, MSG_QUERY); /* only the origin can say */
	move_arm(m, IN_DOUBT_MS);
}

void moves_node_up(struct agent *a, uint32_t node)
{
	for (struct move *m = a->moves, *next; m; m = next) {
		next = m->next;
		if (!m->origin && m->prepared && m->peer == node)
			move_in_doubt(m);
	}
}

static int start(struct agent *a, struct unit *u, uint32_t to, int command, bool dry,
		 const char **refusal)
{
	struct move *m;

	*refusal = u->move ? "in-a-move" :
		   to == a->config.self->number || !config_node_by_number(&a->config, to) ?
			     "no-such-node" :
		   !nodes_channel(a, to) && !dry ? "node-down" :
						   NULL;
	m = *refusal ? NULL : move_new(a, true, u->uuid, u->count);
	if (!m || random_bytes(m->id, sizeof(m->id)) || (dry && dry_run_new(m))) {
		*refusal = *refusal ? *refusal : "no-memory";
		if (m)
			move_free(m);
		return -EINVAL;
	}
	snprintf(m->kind, sizeof(m->kind), "%s", app_kind(u->app));
	m->peer = to;
	m->channel = nodes_channel(a, to);
	m->unit = u;
	m->index = u->index;
	m->command = command;
	u->move = m;
	run(m);
	return 0;
}

int move_start(struct agent *a, struct unit *u, uint32_t to, int command, const char **refusal)
{
	return start(a, u, to, command, false, refusal);
}

int move_dry_run(struct agent *a, struct unit *u, uint32_t to, int command, const char **refusal)
{
	return start(a, u, to, command, true, refusal);
}

struct move *move_by_request(struct agent *a, uint32_t request)
{
	for (struct move *m = a->moves; m; m = m->next)
		if (!m->origin && m->request == request && request) /* 0: was not lent by us */
			return m;
	return NULL;
}

void move_channel_closed(struct agent *a, struct channel *c)
{
	for (struct move *m = a->moves, *next; m; m = next) {
		next = m->next;
		if (m->channel != c)
			continue;
		m->channel = NULL;
		if (m->prepared || m->flipped)
			continue; /* its timer asks, or repeats */
		move_refuse(m, "peer-lost", "in stage %s",
			    m->origin ? stages[stage_at(m->step)].name : "preflight");
		move_fail(m);
	}
}

void moves_stop(struct agent *a)
{
	for (struct move *m = a->moves, *next; m; m = next) {
		next = m->next;
		if (m->prepared || m->flipped)
			continue; /* the other side has a say in it */
		move_refuse(m, "agent-stopping", "%s", "");
		move_fail(m);
	}
}

bool moves_frozen(const struct agent *a)
{
	uint64_t now = boottime_ns();

	for (const struct move *m = a->moves; m; m = m->next)
		if ((m->prepared || (m->fenced && !m->local_ns)) &&
		    now < unit_record(&a->dp, m->index)->deadline)
			return true;
	return false;
}

/* It is prepared, and only the origin can say how it ends. The application may be there still, its
 * connection ended for want of means here, and comes back; else its sockets are gone (ending.c). */
static void wait_for_app(struct move *m)
{
	m->app = NULL;
	m->request = 0;
	for (unsigned int i = 0; i < m->count; i++) {
		close_fd(&m->fds[i]);
		repair_image_clear(&m->images[i]);
	}
	close_fd(&m->bundle);
	unit_unmake(m->agent, m->spare);
	m->spare = NULL;
}

void move_app_gone(struct agent *a, struct app *app)
{
	for (struct move *m = a->moves, *next; m; m = next) {
		next = m->next;
		if (m->origin ? !m->unit || m->unit->app != app || m->flipped : m->app != app)
			continue;
		if (!m->origin && m->prepared && !m->unit) {
			wait_for_app(m);
			continue;
		}
		move_refuse(m, "app-gone", "%s", "");
		move_fail(m);
	}
}
