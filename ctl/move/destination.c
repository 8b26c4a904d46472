// SPDX-License-Identifier: BSD-2-Clause
/*
 * The destination's stages. Until PREPARED is said, all of it is undone by destination_discard();
 * after that only the origin's word (FLIPPED, ABORT) ends it, a packet that proves the flip
 * (move_in_doubt()), or the end of its application, with which the sockets are gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "agent/app.h"
#include "agent/space.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/util.h"
#include "move/dry_run.h"
#include "move/image.h"
#include "move/move.h"
#include "move/refusal.h"

int destination_socket_failed(struct move *m, unsigned int i, int error)
{
	char flow[FLOW_TEXT];
	const char *refusal = error == -EADDRINUSE                            ? "tuple-busy" :
			      error == -ENETUNREACH || error == -EHOSTUNREACH ? "no-route" :
										"socket-restore";

	return move_refuse(m, refusal, "socket %u (%s): %s: %s", i,
			   flow_text(&m->images[i].flow, flow), m->images[i].step,
			   strerror(-error));
}

int destination_lend(struct move *m)
{
	char buf[FERRY_APP_MESSAGE_MAX] = {};
	struct ferry_app_message *q = (struct ferry_app_message *)buf;

	m->request = ++m->agent->next_request;
	q->type = FERRY_APP_LEND;
	q->version = FERRY_APP_VERSION;
	q->id = m->request;
	q->count = m->count;
	memcpy(q->uuid, m->uuid, 16);
	for (unsigned int i = 0; i < m->count; i++) {
		const struct repair_image *image = &m->images[i];

		q->sockets[i].family = image->v6_socket ? AF_INET6 : AF_INET;
		q->sockets[i].type = image->flow.proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM;
		memcpy(q->sockets[i].role, image->role, sizeof(image->role));
	}
	return app_send(m->app, q) ? move_refuse(m, "app-gone", "%s", "") : STAGE_WAIT;
}

int destination_check_room(struct move *m, uint32_t packet)
{
	uint32_t room = nexthop_room(&m->agent->dp, m->peer);

	return room >= packet ? STAGE_DONE :
				move_refuse(m, room ? "mtu-smaller" : "node-down",
					    "the tunnel back has room for %u octets, a client's "
					    "packet may have %u",
					    room, packet);
}

int destination_preflight(struct move *m, const Peer__Move *msg, const uint8_t *trailer,
			  uint32_t size)
{
	int r;

	(void)trailer, (void)size;
	fault_die(FAULT_DIE_DESTINATION, 0);
	if (m->app || m->prepared || m->dry || msg->n_sockets != m->count)
		return move_refuse(m, "protocol", "PREFLIGHT twice");
	if (msg->dry_run)
		return dry_run_judge(m, msg);
	m->epoch = msg->epoch;
	if (images_unpack(m->images, m->count, msg, NULL, 0))
		return move_refuse(m, "protocol", "PREFLIGHT does not decode");
	m->app = app_by_kind(m->agent, msg->kind);
	if (!m->app)
		return move_refuse(m, "app-missing", "kind '%.31s'", msg->kind);
	r = destination_check_room(m, msg->packet);
	r = r ? r : admit_tables(m);
	r = r ? r : admit_room(m);
	r = r ? r : admit_way_back(m, msg);
	m->space = space_again(app_space(m->app));
	for (; !r && m->vips < m->count; m->vips++)
		if (space_deliver(m->agent, m->space, m->images[m->vips].flow.daddr))
			return move_refuse(m, "addr-unavailable",
					   "socket %u: its address is no service's, or cannot be "
					   "made deliverable%s",
					   m->vips,
					   m->space->own ? "" : " to the application's namespace");
	m->device = space_device(m->agent, m->space, m->images[0].flow.daddr);
	return r ? r : destination_lend(m);
}

/* Empty, of the kind that was asked for, each once, and ours to fill: what lives must not be
 * touched, whatever an application lends. */
int destination_check_lent(struct move *m, const int *fds, unsigned int i)
{
	uint64_t cookie = socket_cookie(fds[i]);

	if (!repair_is_empty(fds[i], &m->images[i]))
		return move_refuse(m, "app-sockets", "socket %u is not a fresh one", i);
	if (socket_netns(fds[i]) != m->space->cookie)
		return move_refuse(m, "other-netns", "socket %u", i);
	for (unsigned int k = 0; k < i; k++)
		if (socket_cookie(fds[k]) == cookie)
			return move_refuse(m, "app-sockets", "socket %u is socket %u", i, k);
	return STAGE_DONE;
}

void destination_lent(struct move *m, uint32_t handle, int *fds, unsigned int count)
{
	int r = count == m->count && m->bundle >= 0 ?
			STAGE_DONE :
			move_refuse(m, "app-sockets", "%u of %u lent, with%s a memfd", count,
				    m->count, m->bundle >= 0 ? "" : "out");

	if (m->dry) {
		dry_run_lent(m, fds, r);
		return;
	}
	m->handle = handle;
	for (unsigned int i = 0; !r && i < count; i++)
		r = destination_check_lent(m, fds, i);
	for (unsigned int i = 0; !r && i < count; i++) {
		int e;

		m->fds[i] = TAKE_FD(fds[i]);
		e = repair_claim(m->fds[i], &m->images[i]);
		if (e)
			r = destination_socket_failed(m, i, e);
	}
	fault_die(FAULT_DIE_DESTINATION, 1);
	if (r == STAGE_FAILED)
		move_fail(m);
	else
		move_send(m, MSG_READY);
}

static int enter(struct move *m)
{
	struct dataplane *d = &m->agent->dp;
	struct ferry_record *r;
	uint64_t from;
	const uint8_t *boot = nodes_boot(m->agent, m->peer);
	int e;

	if (m->prepared)
		return STAGE_DONE;
	e = admit_tables(m);
	if (e)
		return e;
	admit_drop_old(m);
	m->spare = unit_make(m->count);
	if (!m->spare)
		return move_refuse(m, "no-memory", "%s", "");
	if (!m->index)
		m->index = unit_alloc(d);
	if (!m->index)
		return move_refuse(m, "table-full", "no unit is free");
	r = unit_record(d, m->index);
	memcpy(r->uuid, m->uuid, 16);
	memcpy(r->move_id, m->id, 16);
	if (boot)
		memcpy(r->peer_boot, boot, 16);
	r->role = FERRY_ROLE_DESTINATION;
	r->peer = (uint16_t)m->peer;
	r->attempt = m->epoch;
	r->flows = m->count;
	r->app = (uint64_t)app_pid(m->app);
	r->netns = m->space->cookie;
	r->held = m->tombstone;
	r->device = m->device;
	r->deadline = boottime_ns() + PARK_MAX_NS;
	r->newer = 0;
	m->lost_before = r->lost;
	from = unit_word(d, m->index);
	if (!unit_swap(d, m->index, from, FERRY_WORD(m->epoch + 1, FERRY_PREPARED, m->peer)))
		return move_refuse(m, "state-changed", "%s", "");
	m->prepared = true;
	fault_die(FAULT_DIE_DESTINATION, 2);
	for (unsigned int i = 0; i < m->count; i++) {
		if (table_find(&d->flows, &m->images[i].flow) == m->index)
			continue;
		e = table_insert(&d->flows, &m->images[i].flow, m->index);
		if (e)
			return move_refuse(m, e == -EEXIST ? "tuple-busy" : "table-full", "%s",
					   strerror(-e));
	}
	return STAGE_DONE;
}

/* The images of PREPARE are those of PREFLIGHT, filled: matched by flow, not by position. */
static int take_images(struct move *m, const Peer__Move *msg, const uint8_t *trailer, uint32_t size)
{
	struct repair_image *images;
	int r = STAGE_DONE;

	if (!trailer || msg->n_sockets != m->count || msg->epoch != m->epoch ||
	    msg->state.len > FERRY_APP_STATE_MAX)
		return move_refuse(m, "protocol", "PREPARE is not what PREFLIGHT announced");
	images = calloc(m->count, sizeof(*images));
	free(m->state); /* a second PREPARE replaces the first */
	m->state = malloc(msg->state.len + 1);
	if (!images || !m->state || images_unpack(images, m->count, msg, trailer, size))
		r = move_refuse(m, "protocol", "PREPARE does not decode");
	for (unsigned int i = 0; !r && i < m->count; i++) {
		unsigned int k = 0;

		while (k < m->count &&
		       memcmp(&images[k].flow, &m->images[i].flow, sizeof(images[k].flow)))
			k++;
		if (k == m->count) {
			r = move_refuse(m, "protocol", "PREPARE has other flows than PREFLIGHT");
		} else {
			images[k].filled = m->images[i].filled;
			repair_image_clear(&m->images[i]);
			m->images[i] = images[k];
			images[k] = (struct repair_image){};
		}
	}
	for (unsigned int i = 0; images && i < m->count; i++)
		repair_image_clear(&images[i]);
	free(images);
	if (r)
		return r;
	memcpy(m->state, msg->state.data, msg->state.len);
	m->state_size = (uint32_t)msg->state.len;
	return STAGE_DONE;
}

int destination_prepare(struct move *m, const Peer__Move *msg, const uint8_t *trailer,
			uint32_t size)
{
	int r = m->fds[0] < 0 ? move_refuse(m, "protocol", "PREPARE before READY") :
				take_images(m, msg, trailer, size);

	r = r ? r : enter(m);
	for (unsigned int i = 0; !r && i < m->count; i++) {
		int e = repair_restore(m->fds[i], &m->images[i]);

		fault_die(FAULT_DIE_DESTINATION, 3);

		if (e)
			r = destination_socket_failed(m, i, e);
	}
	if (!r && (r = bundle_write(m)))
		r = move_refuse(m, "no-memory", "the bundle: %s", strerror(-r));
	if (!r && !app_alive(m->app))
		r = move_refuse(m, "app-gone", "%s", "");
	if (r)
		return r;
	if (fault(FAULT_THAW_BEFORE_FLIP))
		destination_thaw(m, msg, NULL, 0);
	fault_die(FAULT_DIE_DESTINATION, 4);
	move_send(m, MSG_PREPARED);
	fault_die(FAULT_DIE_DESTINATION, 5);
	return STAGE_WAIT;
}

static void adopt(struct move *m)
{
	struct unit *u = m->spare;

	m->spare = NULL;
	unit_enter(m->agent, u, m->app, m->handle);
	memcpy(u->uuid, m->uuid, 16);
	unit_place(m->agent, u, m->index);
	u->moved = true;
	u->delivered = true;
	for (unsigned int i = 0; i < m->count; i++) {
		u->flows[i] = m->images[i].flow;
		memcpy(u->roles[i], m->images[i].role, sizeof(u->roles[i]));
		u->cookies[i] = socket_cookie(m->fds[i]);
	}
	m->vips = 0; /* the unit's now */
	m->unit = u;
}

int destination_thaw(struct move *m, const Peer__Move *msg, const uint8_t *trailer, uint32_t size)
{
	struct dataplane *d = &m->agent->dp;
	uint64_t prepared = FERRY_WORD(m->epoch + 1, FERRY_PREPARED, m->peer);
	uint64_t opening = FERRY_WORD(m->epoch + 1, FERRY_OPENING, m->peer);

	(void)msg, (void)trailer, (void)size;
	if (!m->prepared)
		return move_refuse(m, "protocol", "FLIPPED before PREPARED");
	if (m->unit) /* a fault point thawed it already */
		return STAGE_DONE;
	m->told_flip = true;
	if (!m->app) /* an earlier agent's: not back yet */
		return STAGE_WAIT;
	fault_die(FAULT_DIE_DESTINATION, 6);
	unit_swap(d, m->index, prepared, opening);
	for (unsigned int i = 0; i < m->count; i++) {
		fault_die(FAULT_DIE_DESTINATION, 7);
		int r = repair_thaw(m->fds[i], &m->images[i]);

		if (r)
			log_error("cannot thaw socket %u: %s: %s", i, m->images[i].step,
				  strerror(-r));
	}
	unit_swap(d, m->index, opening, FERRY_WORD(m->epoch + 1, FERRY_LOCAL, 0));
	m->local_ns = boottime_ns();
	/* not in OPENING, which drops the answers */
	for (unsigned int i = 0; i < m->count; i++)
		repair_probe(m->fds[i], &m->images[i]);
	fault_die(FAULT_DIE_DESTINATION, 8);
	app_say_lent(m->app, FERRY_APP_GO, m->request, m->handle, m->uuid);
	fault_die(FAULT_DIE_DESTINATION, 9);
	m->lost_there = unit_record(d, m->index)->lost - m->lost_before;
	move_send(m, MSG_DONE);
	adopt(m);
	converge_tell(m->agent, m->uuid, m->unit->flows, m->count, m->epoch + 1,
		      m->agent->config.self->number, m->peer);
	return fault(FAULT_THAW_BEFORE_FLIP) ? STAGE_WAIT : STAGE_DONE;
}

void destination_discard(struct move *m)
{
	struct agent *a = m->agent;

	if (m->unit)
		return; /* thawed by a fault point: two owners, which is what is to be seen */
	if (m->dry)
		dry_run_release(m);
	for (unsigned int i = 0; i < m->count; i++)
		if (m->fds[i] >= 0)
			repair_discard(m->fds[i]);
	if (m->prepared && m->tombstone)
		unit_swap(&a->dp, m->index, unit_word(&a->dp, m->index),
			  FERRY_WORD(m->epoch + 1, FERRY_REMOTE, m->peer));
	else if (m->prepared)
		unit_drop(a, m->index);
	while (m->vips)
		space_undeliver(a, m->space, m->images[--m->vips].flow.daddr);
	if (m->app)
		app_say_lent(m->app, FERRY_APP_DISCARD, m->request, m->handle, m->uuid);
}
