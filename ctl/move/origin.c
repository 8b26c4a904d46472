// SPDX-License-Identifier: BSD-2-Clause
/*
 * The origin's stages. Up to origin_flip() each can fail, and origin_abort() undoes what was done:
 * the unit's word goes FENCED e+1 -> OPENING e+3 -> LOCAL e+3, and the sockets thaw in between.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include "agent/app.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/util.h"
#include "move/dry_run.h"
#include "move/image.h"
#include "move/move.h"
#include "move/refusal.h"

#define RAISE_MAX 65536 /* epochs; a move takes 2 */

int origin_borrow(struct move *m)
{
	return app_say(m->unit->app, FERRY_APP_BORROW, m->unit->handle, m->uuid, "") ?
		       move_refuse(m, "app-gone", "%s", "") :
		       STAGE_WAIT;
}

/* "socket 2 (tcp a > b): recv-peek: Device or resource busy" */
static int socket_failed(struct move *m, unsigned int i, const char *refusal, int error)
{
	char flow[FLOW_TEXT];

	return move_refuse(m,
			   error == -EMSGSIZE ? "queue-too-big" :
			   error == -ENODATA  ? "urgent-data" :
						refusal,
			   "socket %u (%s): %s: %s", i, flow_text(&m->images[i].flow, flow),
			   m->images[i].step, strerror(-error));
}

int origin_check_socket(struct move *m, unsigned int i)
{
	struct repair_image *image = &m->images[i];
	const char *refusal = "protocol";
	char flow[FLOW_TEXT];

	if (repair_check(m->fds[i], image, &refusal))
		return move_refuse(m, refusal, "socket %u (%s)", i,
				   flow_text(&m->unit->flows[i], flow));
	if (socket_cookie(m->fds[i]) != m->unit->cookies[i] ||
	    memcmp(&image->flow, &m->unit->flows[i], sizeof(image->flow)))
		return move_refuse(m, "app-sockets", "socket %u (%s)", i,
				   flow_text(&m->unit->flows[i], flow));
	if (!address_moves(m->agent, image->flow.daddr))
		return move_refuse(m, "addr-node-local", "socket %u (%s)", i,
				   flow_text(&image->flow, flow));
	memcpy(image->role, m->unit->roles[i], sizeof(image->role));
	return STAGE_DONE;
}

static int send_images(struct move *m, enum message type, bool queues)
{
	struct packed_images p;
	Peer__Move msg;
	int r = m->channel ? images_pack(&p, m->images, m->count) : -ENOTCONN;

	if (r)
		return r;
	move_address(m, &msg);
	msg.kind = m->kind;
	msg.packet = m->agent->config.packet;
	msg.dry_run = m->dry != NULL;
	msg.n_sockets = m->count;
	msg.sockets = p.list;
	msg.state.data = m->state;
	msg.state.len = m->state_size;
	r = channel_send(m->channel, type, &msg, p.chunks, queues ? p.n_chunks : 0);
	images_free(&p);
	return r;
}

static int sent(struct move *m, int r)
{
	if (!r)
		return STAGE_WAIT;
	return move_refuse(m,
			   r == -EMSGSIZE || r == -ENOBUFS ? "queue-too-big" :
			   r == -ENOMEM			   ? "no-memory" :
							     "peer-lost",
			   "%s", strerror(-r));
}

int origin_check_room(struct move *m)
{
	uint32_t room = nexthop_room(&m->agent->dp, m->peer);

	return room >= m->agent->config.packet ?
		       STAGE_DONE :
		       move_refuse(m, room ? "mtu-smaller" : "node-down",
				   "the tunnel to the node has room for %u octets, a client's "
				   "packet may have %u",
				   room, m->agent->config.packet);
}

int origin_preflight(struct move *m)
{
	int r = STAGE_DONE;

	if (m->dry)
		return dry_run_preflight(m);
	for (unsigned int i = 0; r == STAGE_DONE && i < m->count; i++)
		r = origin_check_socket(m, i);
	r = r ? r : origin_check_room(m);
	return r ? r : origin_ask(m);
}

int origin_ask(struct move *m)
{
	m->epoch = FERRY_WORD_EPOCH(unit_word(&m->agent->dp, m->index)) + 1;
	m->told = true;
	return sent(m, send_images(m, MSG_PREFLIGHT, false));
}

int origin_quiesce(struct move *m)
{
	m->quiet = true;
	return app_say(m->unit->app, FERRY_APP_QUIESCE, m->unit->handle, m->uuid, "") ?
		       move_refuse(m, "app-gone", "%s", "") :
		       STAGE_WAIT;
}

int origin_fence(struct move *m)
{
	struct dataplane *d = &m->agent->dp;
	struct ferry_record *r = unit_record(d, m->index);
	uint64_t local = FERRY_WORD(m->epoch - 1, FERRY_LOCAL, 0);
	const uint8_t *boot = nodes_boot(m->agent, m->peer);

	memcpy(r->move_id, m->id, 16);
	if (boot)
		memcpy(r->peer_boot, boot, 16);
	r->role = FERRY_ROLE_ORIGIN;
	r->peer = (uint16_t)m->peer;
	r->attempt = m->epoch;
	r->newer = 0;
	m->lost_before = r->lost;
	m->fenced_ns = boottime_ns();
	r->deadline = m->fenced_ns + PARK_MAX_NS;
	if (!unit_swap(d, m->index, local, FERRY_WORD(m->epoch, FERRY_FENCED, m->peer)))
		return move_refuse(m, "state-changed", "%s", "");
	m->fenced = true;
	return STAGE_DONE;
}

int origin_extract(struct move *m)
{
	for (unsigned int i = 0; i < m->count; i++) {
		int r = repair_freeze(m->fds[i], &m->images[i]);

		if (r)
			return socket_failed(m, i, "socket-extract", r);
	}
	memset(m->queued, 0, sizeof(m->queued));
	for (unsigned int i = 0; i < m->count; i++) {
		const struct repair_image *image = &m->images[i];
		int r = repair_extract(m->fds[i], &m->images[i]);

		if (r)
			return socket_failed(m, i, "socket-extract", r);
		m->queued[0] += image->inq;
		m->queued[1] += image->outq - image->unsent;
		m->queued[2] += image->unsent;
	}
	return STAGE_DONE;
}

int origin_prepare(struct move *m)
{
	return sent(m, send_images(m, MSG_PREPARE, true));
}

static int on_held(sd_event_source *s, uint64_t usec, void *arg)
{
	(void)s, (void)usec;
	move_advance(arg, STAGE_HOLD);
	return 0;
}

/* Only where a fault point asks for a long freeze. */
int origin_hold(struct move *m)
{
	uint32_t ms = fault(FAULT_HOLD);

	if (!ms)
		return STAGE_DONE;
	log_info("holding a frozen unit for %u ms, as a fault point says", ms);
	sd_event_add_time_relative(m->agent->event, &m->deadline, CLOCK_MONOTONIC, ms * 1000ULL, 1,
				   on_held, m);
	return STAGE_WAIT;
}

/* What passed the fence before its store and came up only now is not in the image: extract and
 * prepare again, once. */
static int nothing_arrived(struct move *m)
{
	if (fault(FAULT_ARRIVED_ONCE) && !m->again)
		return STAGE_AGAIN;
	for (unsigned int i = 0; i < m->count; i++) {
		int r = repair_arrived(m->fds[i], &m->images[i]);

		if (r < 0)
			return socket_failed(m, i, "socket-extract", r);
		if (r)
			return m->again ? move_refuse(m, "arrived-late", "socket %u", i) :
					  STAGE_AGAIN;
	}
	return STAGE_DONE;
}

int origin_flip(struct move *m)
{
	struct dataplane *d = &m->agent->dp;
	const struct ferry_record *r = unit_record(d, m->index);
	int e = fault(FAULT_NO_ARRIVAL_CHECK) ? STAGE_DONE : nothing_arrived(m);

	if (e)
		return e;
	if (fault(FAULT_ABORT_BEFORE_FLIP))
		return move_refuse(m, "state-changed", "by a fault point");
	if (r->newer)
		return move_refuse(m, "epoch-behind", "epoch %u was seen, ours is %u", r->newer,
				   m->epoch);
	if (!unit_swap(d, m->index, FERRY_WORD(m->epoch, FERRY_FENCED, m->peer),
		       FERRY_WORD(m->epoch + 1, FERRY_REMOTE, m->peer)))
		return move_refuse(m, "state-changed", "%s", "");
	m->flipped = true;
	return STAGE_DONE;
}

int origin_thaw(struct move *m)
{
	struct unit *u = m->unit;

	move_send(m, MSG_FLIPPED); /* and again, until it is answered */
	/* at once: what the owner says of the unit's end has to come after it */
	if (!m->learnt)
		converge_tell(m->agent, m->uuid, u->flows, u->count, m->epoch + 1, m->peer, 0);
	m->learnt = true;
	return STAGE_WAIT;
}

int origin_close(struct move *m)
{
	for (unsigned int i = 0; i < m->count; i++) {
		int r = m->images[i].flow.proto == IPPROTO_TCP ?
				repair_close(m->fds[i], &m->images[i]) :
				0;

		if (r)
			log_warning("cannot close socket %u of a moved unit: %s", i, strerror(-r));
	}
	if (m->flipped)
		app_say(m->unit->app, FERRY_APP_COMMITTED, m->unit->handle, m->uuid, "");
	return STAGE_DONE;
}

int origin_converge(struct move *m)
{
	struct unit *u = m->unit;

	unit_undeliver(m->agent, u);
	unit_record(&m->agent->dp, m->index)->role = FERRY_ROLE_NONE;
	m->unit = NULL;
	unit_forget(m->agent, u);
	if (m->ended)
		unit_drop(m->agent, m->index);
	return STAGE_DONE;
}

void origin_reopen(struct move *m)
{
	struct dataplane *d = &m->agent->dp;
	uint64_t opening = FERRY_WORD(m->epoch + 2, FERRY_OPENING, m->peer);
	bool probe[FERRY_UNIT_SOCKETS] = {};

	if (unit_word(d, m->index) != opening &&
	    !unit_swap(d, m->index, FERRY_WORD(m->epoch, FERRY_FENCED, m->peer), opening))
		log_error("unit %u left FENCED while its move was aborted", m->index);
	for (unsigned int i = 0; i < m->count; i++) {
		struct repair_image *image = &m->images[i];
		int r = 0;

		fault_die(FAULT_DIE_ABORTING, i);
		probe[i] = image->frozen; /* no other has been touched */
		if (image->frozen)
			r = repair_unfreeze(m->fds[i], image);
		if (r)
			log_error("cannot thaw socket %u after an abort: %s: %s", i, image->step,
				  strerror(-r));
	}
	fault_die(FAULT_DIE_ABORTING, m->count);
	unit_swap(d, m->index, opening, FERRY_WORD(m->epoch + 2, FERRY_LOCAL, 0));
	fault_die(FAULT_DIE_ABORTING, m->count + 1);
	for (unsigned int i = 0; i < m->count; i++)
		if (probe[i])
			repair_probe(m->fds[i], &m->images[i]);
}

/* The destination's application died after the flip, and its sockets with it. */
static void lost(struct move *m)
{
	unit_record(&m->agent->dp, m->index)->deadline = boottime_ns() + GONE_NS;
	unit_swap(&m->agent->dp, m->index, FERRY_WORD(m->epoch + 1, FERRY_REMOTE, m->peer),
		  FERRY_WORD(m->epoch + 2, FERRY_GONE, 0));
	converge_forget(m->agent, m->uuid, m->epoch + 2);
	origin_close(m);
	origin_converge(m);
}

/* The destination holds a newer epoch for one of the flows: the next attempt starts above it. A
 * peer that lies must not make epochs wrap around. */
static void raise_epoch(struct move *m)
{
	uint64_t word = unit_word(&m->agent->dp, m->index);

	if (FERRY_NEWER(m->newer, FERRY_WORD_EPOCH(word)) &&
	    m->newer - FERRY_WORD_EPOCH(word) < RAISE_MAX)
		unit_swap(&m->agent->dp, m->index, word, FERRY_WORD(m->newer, FERRY_LOCAL, 0));
}

void origin_abort(struct move *m)
{
	if (m->flipped) {
		lost(m);
		return;
	}
	if (m->fenced)
		origin_reopen(m);
	else if (m->newer)
		raise_epoch(m);
	if (m->told)
		move_send(m, MSG_ABORT);
	if (m->quiet)
		app_say(m->unit->app, FERRY_APP_ABORTED, m->unit->handle, m->uuid, m->refusal);
}
