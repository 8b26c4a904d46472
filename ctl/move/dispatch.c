// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the other nodes say of moves, handed to whom it concerns: a destination's stages, an
 * origin's wait, or, where the move is not known (any more), its end once more.
 */
#include <string.h>
#include "base/util.h"
#include "move/dry_run.h"
#include "move/move.h"
#include "move/refusal.h"

#define DESTINATION_MS 15000 /* for the origin's next message, before PREPARED */

/* Of the node that it is made with only: another one has no say in it. */
static struct move *find(struct agent *a, bool origin, uint32_t node, const Peer__Move *msg)
{
	for (struct move *m = a->moves; m; m = m->next)
		if (m->origin == origin && m->peer == node &&
		    !memcmp(m->id, msg->move_id.data, 16) && !memcmp(m->uuid, msg->uuid.data, 16))
			return m;
	return NULL;
}

/* An earlier attempt for the same unit that was never decided here: a newer one is its "no". */
static bool supersede(struct agent *a, uint32_t node, const Peer__Move *msg)
{
	for (struct move *m = a->moves; m; m = m->next) {
		if (m->origin || memcmp(m->uuid, msg->uuid.data, 16))
			continue;
		if (msg->dry_run || m->peer != node || !FERRY_NEWER(msg->epoch, m->epoch))
			return false;
		destination_discard(m);
		move_free(m);
		break;
	}
	return true;
}

/* refusal: of REFUSED, else NULL */
static void answer(struct channel *c, const Peer__Move *msg, enum message type, const char *refusal)
{
	Peer__Move m;

	peer__move__init(&m);
	m.uuid = msg->uuid;
	m.move_id = msg->move_id;
	m.epoch = msg->epoch;
	if (refusal)
		m.refusal = (char *)refusal;
	channel_send(c, type, &m, NULL, 0);
}

/* A message of no move that is known: its end is repeated, where it had one. The tables know: a
 * unit that has been ours from that epoch on was opened, wherever it went since. */
static void to_nobody(struct agent *a, struct channel *c, enum message type, const Peer__Move *msg)
{
	uint32_t index = unit_by_uuid(&a->dp, msg->uuid.data);
	uint64_t word = index ? unit_word(&a->dp, index) : 0;
	bool opened = index && FERRY_WORD_STATE(word) != FERRY_PREPARED &&
		      !FERRY_NEWER(msg->epoch + 1, FERRY_WORD_EPOCH(word));

	if (type == MSG_FLIPPED && opened)
		answer(c, msg, MSG_DONE, NULL);
	else
		answer(c, msg, MSG_REFUSED, type == MSG_PREFLIGHT ? "in-a-move" : "protocol");
}

/* What a destination has been told; a PREFLIGHT begins its part. */
static void to_destination(struct agent *a, struct channel *c, uint32_t node, enum message type,
			   const Peer__Move *msg, const uint8_t *trailer, uint32_t size)
{
	struct move *m = find(a, false, node, msg);
	int r = STAGE_FAILED;

	if (!m && type == MSG_PREFLIGHT && msg->n_sockets &&
	    msg->n_sockets <= FERRY_UNIT_SOCKETS && !moves_crowded(a, node) &&
	    supersede(a, node, msg))
		m = move_new(a, false, msg->uuid.data, (unsigned int)msg->n_sockets);
	if (!m) {
		to_nobody(a, c, type, msg);
		return;
	}
	memcpy(m->id, msg->move_id.data, 16);
	m->peer = node;
	m->channel = c;
	for (unsigned int i = 0; i < STAGE_COUNT; i++)
		if (stages[i].destination && stages[i].request == type)
			r = stages[i].destination(m, msg, trailer, size);
	if (r == STAGE_FAILED)
		move_fail(m);
	else if (r == STAGE_WAIT && move_arm(m, m->prepared ? IN_DOUBT_MS : DESTINATION_MS))
		move_fail(m);
	else if (r != STAGE_WAIT)
		move_free(m);
}

static void aborted(struct agent *a, uint32_t node, const Peer__Move *msg)
{
	struct move *m = find(a, false, node, msg);

	if (!m)
		return;
	destination_discard(m);
	move_free(m);
}

/* A destination in doubt asks. "No" is said only where the word has left FENCED. */
static void answer_query(struct agent *a, struct channel *c, const Peer__Move *msg)
{
	uint32_t index = unit_by_uuid(&a->dp, msg->uuid.data);
	uint32_t state = index ? FERRY_WORD_STATE(unit_word(&a->dp, index)) : FERRY_FREE;
	bool same = index &&
		    !memcmp(unit_record(&a->dp, index)->move_id, msg->move_id.data, 16);

	if (!same || state != FERRY_FENCED)
		answer(c, msg, same && state == FERRY_REMOTE ? MSG_FLIPPED : MSG_ABORT, NULL);
}

/* This agent has not made the move, but its record says that it was flipped; and there it is
 * not. */
static void lost_since(struct agent *a, uint32_t node, const Peer__Move *msg)
{
	uint32_t index = unit_by_uuid(&a->dp, msg->uuid.data);
	uint64_t word = FERRY_WORD(msg->epoch + 1, FERRY_REMOTE, node);
	struct ferry_record *r = index ? unit_record(&a->dp, index) : NULL;

	if (!r || r->role != FERRY_ROLE_ORIGIN || memcmp(r->move_id, msg->move_id.data, 16))
		return;
	r->deadline = boottime_ns() + GONE_NS;
	if (unit_swap(&a->dp, index, word, FERRY_WORD(msg->epoch + 2, FERRY_GONE, 0)))
		converge_forget(a, msg->uuid.data, msg->epoch + 2);
}

static void to_origin(struct agent *a, uint32_t node, enum message type, const Peer__Move *msg)
{
	struct move *m = find(a, true, node, msg);

	if (!m && type == MSG_REFUSED)
		lost_since(a, node, msg);
	if (!m)
		return;
	if (type == MSG_READY) {
		if (m->dry)
			dry_run_answered(m, msg);
		move_advance(m, STAGE_PREFLIGHT);
	} else if (type == MSG_PREPARED) {
		move_advance(m, STAGE_PREPARE);
	} else if (type == MSG_DONE) {
		m->local_ns = msg->local_ns;
		m->lost_there = msg->lost;
		move_advance(m, STAGE_THAW);
	} else { /* MSG_REFUSED; after the flip: its application died with the sockets */
		m->newer = msg->newer;
		move_refuse(m, refusal_id(msg->refusal), "%s", msg->detail);
		move_fail(m);
	}
}

void move_message(struct agent *a, struct channel *c, uint32_t node, enum message type,
		  const Peer__Move *msg, const uint8_t *trailer, uint32_t size)
{
	switch (type) {
	case MSG_PREFLIGHT:
	case MSG_PREPARE:
	case MSG_FLIPPED:
		to_destination(a, c, node, type, msg, trailer, size);
		break;
	case MSG_ABORT:
		aborted(a, node, msg);
		break;
	case MSG_QUERY:
		answer_query(a, c, msg);
		break;
	case MSG_LEARN:
		converge_learn(a, msg);
		break;
	case MSG_FORGET:
		converge_on_forget(a, msg);
		break;
	case MSG_KNOWS:
		converge_on_knows(a, node, msg);
		break;
	default:
		to_origin(a, node, type, msg);
	}
}
