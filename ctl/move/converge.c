// SPDX-License-Identifier: BSD-2-Clause
/*
 * Telling every node where a unit lives, and hearing it. The origin tells at the flip, the owner at
 * its LOCAL and again to each node that connects later, with the list of all that its tables know,
 * so that who was not there hears of ends, too. An ingress makes entries; any other node that holds
 * nothing of the unit has nothing to learn.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "base/log.h"
#include "base/util.h"
#include "move/image.h"
#include "move/move.h"

#define KNOWN_CHUNK 1024 /* uuids a message */

static const uint8_t no_move[16];

/* Since when the unit is away: its fence, or when we heard of it. */
static void note_away(struct ferry_record *r)
{
	r->deadline = boottime_ns() + PARK_MAX_NS;
}

static uint64_t away_since_ns(const struct ferry_record *r)
{
	return r->deadline - PARK_MAX_NS;
}

static void address(Peer__Move *m, const uint8_t uuid[16])
{
	peer__move__init(m);
	m->uuid.data = (uint8_t *)uuid;
	m->uuid.len = 16;
	m->move_id.data = (uint8_t *)no_move;
	m->move_id.len = 16;
}

static void learn(struct agent *a, const uint8_t uuid[16], const struct ferry_flow *flows,
		  unsigned int count, uint32_t epoch, uint32_t owner, uint32_t but,
		  struct channel *only)
{
	Peer__Flow packed[FERRY_UNIT_SOCKETS], *list[FERRY_UNIT_SOCKETS];
	Peer__Move m;

	address(&m, uuid);
	for (unsigned int i = 0; i < count; i++) {
		flow_pack(&packed[i], &flows[i]);
		list[i] = &packed[i];
	}
	m.n_flows = count;
	m.flows = list;
	m.epoch = epoch;
	m.node = owner;
	if (only)
		channel_send(only, MSG_LEARN, &m, NULL, 0);
	else
		nodes_tell(a, MSG_LEARN, &m, owner, but);
}

void converge_tell(struct agent *a, const uint8_t uuid[16], const struct ferry_flow *flows,
		   unsigned int count, uint32_t epoch, uint32_t owner, uint32_t but)
{
	learn(a, uuid, flows, count, epoch, owner, but, NULL);
}

void converge_forget(struct agent *a, const uint8_t uuid[16], uint32_t epoch)
{
	Peer__Move m;

	address(&m, uuid);
	m.epoch = epoch;
	nodes_tell(a, MSG_FORGET, &m, 0, 0);
}

static void send_known(struct channel *c, ProtobufCBinaryData *uuids, size_t n, bool last)
{
	Peer__Move m;

	address(&m, no_move);
	m.known = uuids;
	m.n_known = n;
	m.last = last;
	channel_send(c, MSG_KNOWS, &m, NULL, 0);
}

/* Every unit in the tables, whatever its state: who holds an entry that names us for a unit that
 * is not among them has missed its end. */
static void tell_known(struct agent *a, struct channel *c)
{
	ProtobufCBinaryData uuids[KNOWN_CHUNK];
	size_t n = 0;

	for (uint32_t i = 1; i < a->dp.control.units; i++) {
		if (FERRY_WORD_STATE(unit_word(&a->dp, i)) == FERRY_FREE)
			continue;
		uuids[n++] = (ProtobufCBinaryData){ 16, unit_record(&a->dp, i)->uuid };
		if (n == KNOWN_CHUNK) {
			send_known(c, uuids, n, false);
			n = 0;
		}
	}
	send_known(c, uuids, n, true);
}

void converge_node(struct agent *a, uint32_t node)
{
	struct channel *c = nodes_channel(a, node);

	if (!c)
		return;
	for (struct unit *u = a->units; u; u = u->next) {
		uint64_t word = unit_word(&a->dp, u->index);

		if (u->moved && FERRY_WORD_STATE(word) == FERRY_LOCAL)
			learn(a, u->uuid, u->flows, u->count, FERRY_WORD_EPOCH(word),
			      a->config.self->number, 0, c);
	}
	tell_known(a, c);
}

/* The node's list is whole: entries that send to it, of units that it does not know, have missed
 * their end. What is in a move here is left to it; and what has moved there since it connected may
 * be too new for a list that has been on its way for as long. */
static void sweep(struct agent *a, uint32_t node)
{
	uint64_t greeted = nodes_greeted_ns(a, node);
	uint32_t units = nodes_known_whole(a, node) ? a->dp.control.units : 0;

	for (uint32_t i = 1; i < units; i++) {
		const struct ferry_record *r = unit_record(&a->dp, i);
		uint64_t word = unit_word(&a->dp, i);

		if (FERRY_WORD_STATE(word) == FERRY_REMOTE && FERRY_WORD_HOP(word) == node &&
		    !unit_by_index(a, i) && !nodes_knows(a, node, r->uuid) &&
		    (!r->deadline || away_since_ns(r) < greeted))
			unit_drop(a, i);
	}
	nodes_forget_known(a, node);
}

void converge_on_knows(struct agent *a, uint32_t node, const Peer__Move *m)
{
	nodes_know(a, node, m->known, m->n_known);
	if (m->last)
		sweep(a, node);
}

/* An ingress that holds nothing of the unit yet. */
static void enter(struct agent *a, const Peer__Move *m)
{
	uint32_t index = unit_alloc(&a->dp);
	struct ferry_record *r;
	int e = index ? 0 : -ENOSPC;

	if (!e) {
		r = unit_record(&a->dp, index);
		memcpy(r->uuid, m->uuid.data, 16);
		r->role = FERRY_ROLE_INGRESS;
		note_away(r);
		r->flows = (uint32_t)m->n_flows;
		unit_swap(&a->dp, index, 0, FERRY_WORD(m->epoch, FERRY_REMOTE, m->node));
	}
	for (size_t i = 0; !e && i < m->n_flows; i++) {
		struct ferry_flow flow;
		uint32_t held;

		e = flow_unpack(&flow, m->flows[i]);
		held = e ? 0 : table_find(&a->dp.flows, &flow);
		/* of an earlier connection, whose end was not heard of */
		if (held && held != index && !unit_by_index(a, held) &&
		    FERRY_WORD_STATE(unit_word(&a->dp, held)) == FERRY_REMOTE &&
		    !FERRY_NEWER(FERRY_WORD_EPOCH(unit_word(&a->dp, held)), m->epoch))
			unit_drop(a, held);
		e = e ? e : table_insert(&a->dp.flows, &flow, index);
	}
	if (e) {
		if (index)
			unit_drop(a, index);
		log_warning("cannot enter a moved unit: %s; its packets go by way of its origin",
			    strerror(-e));
	}
}

/* An ingress that died between the word and the flows has left an entry without some of them. */
static bool is_whole(struct agent *a, uint32_t index, const Peer__Move *m)
{
	struct ferry_flow flow;

	for (size_t i = 0; i < m->n_flows; i++)
		if (!flow_unpack(&flow, m->flows[i]) && table_find(&a->dp.flows, &flow) != index)
			return false;
	return true;
}

void converge_learn(struct agent *a, const Peer__Move *m)
{
	uint32_t index = unit_by_uuid(&a->dp, m->uuid.data);
	uint64_t word = index ? unit_word(&a->dp, index) : 0;

	if (!config_node_by_number(&a->config, m->node) || m->node == a->config.self->number ||
	    !m->n_flows || m->n_flows > FERRY_UNIT_SOCKETS)
		return;
	if (index && FERRY_WORD_STATE(word) == FERRY_REMOTE &&
	    unit_record(&a->dp, index)->role == FERRY_ROLE_INGRESS && !is_whole(a, index, m) &&
	    !FERRY_NEWER(FERRY_WORD_EPOCH(word), m->epoch)) {
		unit_drop(a, index);
		index = 0;
	}
	if (!index) {
		if (a->config.self->ingress)
			enter(a, m);
		return;
	}
	/* only a tombstone or an ingress entry can be out of date, or wrong that the unit has
	 * ended: all else is the owner's */
	if ((FERRY_WORD_STATE(word) == FERRY_REMOTE || FERRY_WORD_STATE(word) == FERRY_GONE) &&
	    FERRY_NEWER(m->epoch, FERRY_WORD_EPOCH(word))) {
		note_away(unit_record(&a->dp, index));
		unit_swap(&a->dp, index, word, FERRY_WORD(m->epoch, FERRY_REMOTE, m->node));
	}
}

void converge_on_forget(struct agent *a, const Peer__Move *m)
{
	uint32_t index = unit_by_uuid(&a->dp, m->uuid.data);
	uint64_t word = index ? unit_word(&a->dp, index) : 0;
	struct unit *u = index ? unit_by_index(a, index) : NULL;

	if (!index || FERRY_WORD_STATE(word) != FERRY_REMOTE ||
	    FERRY_NEWER(FERRY_WORD_EPOCH(word), m->epoch))
		return;
	if (u && u->move) /* DONE is still to come, and finds its tombstone */
		u->move->ended = true;
	else
		unit_drop(a, index);
}
