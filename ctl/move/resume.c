// SPDX-License-Identifier: BSD-2-Clause
/*
 * See resume.h for the table. Nothing is believed of an application but its descriptors: a unit is
 * the one that it says where the tables name it for the tuples that these sockets have.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>
#include "agent/access.h"
#include "agent/app.h"
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "move/refusal.h"
#include "move/resume.h"

static uint32_t state_of(struct agent *a, uint32_t index)
{
	return index ? FERRY_WORD_STATE(unit_word(&a->dp, index)) : FERRY_FREE;
}

/* The tuple is this unit's, of the namespace that it is of; flow gets it. Others may have a socket
 * of the same tuple in a namespace of their own. */
static bool belongs(struct agent *a, int fd, uint32_t index, struct ferry_flow *flow)
{
	struct repair_image image;

	if (repair_identify(fd, &image) || table_find(&a->dp.flows, &image.flow) != index)
		return false;
	*flow = image.flow;
	return socket_netns(fd) == unit_record(&a->dp, index)->netns;
}

/* Every socket is one of the unit's, and each of its flows is there: then there is none besides. */
static bool all_belong(struct agent *a, const struct resumed *r, uint32_t index)
{
	struct ferry_flow flows[FERRY_UNIT_SOCKETS];

	if (!index || unit_record(&a->dp, index)->flows != r->count ||
	    unit_record(&a->dp, index)->netns != app_space(r->app)->cookie)
		return false;
	for (unsigned int i = 0; i < r->count; i++)
		if (!belongs(a, r->fds[i], index, &flows[i]))
			return false;
	return flows_differ(flows, r->count);
}

/* The unit as an earlier agent left it, which nobody has claimed yet. */
static struct unit *left(struct agent *a, const struct resumed *r, uint32_t index)
{
	struct unit *u = index ? unit_by_index(a, index) : NULL;

	return u && !u->app && !u->move && all_belong(a, r, index) ? u : NULL;
}

static void take(struct agent *a, struct unit *u, const struct resumed *r)
{
	struct repair_image image;

	u->app = r->app;
	u->uid = app_uid(r->app);
	u->handle = r->handle;
	unit_record(&a->dp, u->index)->app = (uint64_t)app_pid(r->app);
	for (unsigned int i = 0; i < r->count; i++) {
		repair_identify(r->fds[i], &image);
		u->flows[i] = image.flow;
		u->cookies[i] = socket_cookie(r->fds[i]);
		memcpy(u->roles[i], r->sockets[i].role, sizeof(u->roles[i]) - 1);
	}
}

static void say(const struct resumed *r, enum ferry_app_type type, const uint8_t uuid[16],
		const char *text)
{
	app_say(r->app, type, r->handle, uuid, text);
}

/* As if it were new, which it is to these tables. */
static void offer(struct agent *a, const struct resumed *r, const char **refusal)
{
	struct unit *u;

	if (unit_offer(a, r->app, r->handle, r->fds, r->sockets, r->count, &u, refusal))
		return;
	if (r->was == FERRY_RESUME_QUIESCED)
		say(r, FERRY_APP_ABORTED, u->uuid, "agent-restarted");
	else
		say(r, FERRY_APP_OFFERED, u->uuid, "");
}

static void resume_ours(struct agent *a, const struct resumed *r, const char **refusal)
{
	uint32_t index = unit_by_uuid(&a->dp, r->uuid);
	struct unit *u = state_of(a, index) == FERRY_LOCAL ? left(a, r, index) : NULL;

	if (!u) {
		offer(a, r, refusal);
		return;
	}
	take(a, u, r);
	say(r, FERRY_APP_OFFERED, u->uuid, "");
}

/* FENCED, or an abort that has begun: the origin's half of it, with a move made for that. */
static int abort_move(struct agent *a, struct unit *u, struct resumed *r)
{
	struct ferry_record *record = unit_record(&a->dp, u->index);
	struct move *m = move_new(a, true, u->uuid, r->count);

	if (!m)
		return -ENOMEM;
	memcpy(m->id, record->move_id, 16);
	m->peer = record->peer;
	m->index = u->index;
	m->epoch = record->attempt;
	for (unsigned int i = 0; i < r->count; i++) {
		repair_identify(r->fds[i], &m->images[i]);
		m->images[i].frozen = repair_is_frozen(r->fds[i]);
		m->fds[i] = TAKE_FD(r->fds[i]);
	}
	origin_reopen(m);
	m->channel = nodes_channel(a, m->peer);
	move_send(m, MSG_ABORT); /* it would ask, too */
	move_free(m);
	return 0;
}

/* The unit lives elsewhere, or did: what is left here of its sockets ends in silence. */
static void close_moved(const struct resumed *r)
{
	for (unsigned int i = 0; i < r->count; i++) {
		struct repair_image image;

		if (!repair_identify(r->fds[i], &image) && image.flow.proto == IPPROTO_TCP &&
		    repair_is_frozen(r->fds[i]))
			repair_close(r->fds[i], &image);
	}
	say(r, FERRY_APP_COMMITTED, r->uuid, "");
}

static bool any_frozen(const struct resumed *r)
{
	for (unsigned int i = 0; i < r->count; i++)
		if (repair_is_frozen(r->fds[i]) && repair_is_tcp(r->fds[i]))
			return true;
	return false;
}

static int resume_quiesced(struct agent *a, struct resumed *r, const char **refusal)
{
	uint32_t index = unit_by_uuid(&a->dp, r->uuid), state = state_of(a, index);
	struct unit *u = state == FERRY_LOCAL || state == FERRY_FENCED || state == FERRY_OPENING ?
				 left(a, r, index) :
				 NULL;
	int e = 0;

	if (u) {
		take(a, u, r);
		if (state != FERRY_LOCAL)
			e = abort_move(a, u, r);
		if (!e)
			say(r, FERRY_APP_ABORTED, u->uuid, "agent-restarted");
	} else if (state == FERRY_REMOTE || state == FERRY_GONE || (!index && any_frozen(r))) {
		/* frozen, and not known here any more: it went, and ended there. The role stays: that
		 * the destination has it is not known yet (lost_since() in dispatch.c) */
		close_moved(r);
	} else {
		offer(a, r, refusal);
	}
	return e;
}

static bool read_bundle(const struct resumed *r, struct ferry_bundle *head,
			struct ferry_bundle_socket sockets[FERRY_APP_SOCKETS])
{
	size_t size = r->count * sizeof(sockets[0]);

	return r->bundle >= 0 && pread(r->bundle, head, sizeof(*head), 0) == sizeof(*head) &&
	       head->magic == FERRY_BUNDLE_MAGIC && head->count == r->count &&
	       !memcmp(head->uuid, r->uuid, 16) &&
	       pread(r->bundle, sockets, size, sizeof(*head)) == (ssize_t)size;
}

/* The move to here whose agent is gone, and that waits for its sockets. */
static struct move *orphan(struct agent *a, const struct resumed *r, const uint8_t id[16])
{
	for (struct move *m = a->moves; m; m = m->next)
		if (!m->origin && m->prepared && !m->app && m->count == r->count &&
		    !memcmp(m->uuid, r->uuid, 16) && !memcmp(m->id, id, 16))
			return m;
	return NULL;
}

/* It goes on as if this agent had prepared it. */
static int adopt_move(struct move *m, struct resumed *r, const struct ferry_bundle_socket *sockets)
{
	m->spare = unit_make(r->count);
	if (!m->spare)
		return -ENOMEM;
	m->app = r->app;
	m->handle = r->handle;
	unit_record(&m->agent->dp, m->index)->app = (uint64_t)app_pid(r->app);
	for (unsigned int i = 0; i < r->count; i++) {
		struct repair_image *image = &m->images[i];

		repair_identify(r->fds[i], image);
		memcpy(image->role, sockets[i].role, sizeof(image->role) - 1);
		image->filled = true;
		image->unsent = sockets[i].unsent;
		image->buf_lock = sockets[i].buf_lock;
		image->keepalive = sockets[i].keepalive;
		image->user_timeout = sockets[i].user_timeout;
		image->reuseaddr = sockets[i].reuseaddr;
		image->peek_off = sockets[i].peek_off;
		m->fds[i] = TAKE_FD(r->fds[i]);
	}
	return 0;
}

static int resume_lent(struct agent *a, struct resumed *r, const char **refusal)
{
	struct ferry_bundle_socket sockets[FERRY_APP_SOCKETS] = {};
	struct ferry_bundle head = {};
	bool whole = read_bundle(r, &head, sockets);
	uint32_t index = unit_by_uuid(&a->dp, r->uuid);
	bool same = whole && index &&
		    !memcmp(unit_record(&a->dp, index)->move_id, head.move_id, 16);
	struct move *m = same && all_belong(a, r, index) ? orphan(a, r, head.move_id) : NULL;
	struct unit *u = same && state_of(a, index) == FERRY_LOCAL ? left(a, r, index) : NULL;
	int e = m ? adopt_move(m, r, sockets) : 0;

	if (m && !e) {
		move_in_doubt(m);
	} else if (u) {
		take(a, u, r);
		app_say_lent(r->app, FERRY_APP_GO, 0, r->handle, u->uuid);
	} else if (!m) {
		*refusal = "state-changed"; /* never PREPARED, or given up since */
	}
	return e;
}

int resume(struct agent *a, struct resumed *r, const char **refusal)
{
	if (r->was == FERRY_RESUME_LENT)
		return resume_lent(a, r, refusal);
	if (r->was == FERRY_RESUME_QUIESCED)
		return resume_quiesced(a, r, refusal);
	resume_ours(a, r, refusal);
	return 0;
}
