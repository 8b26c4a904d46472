// SPDX-License-Identifier: BSD-2-Clause
/*
 * At its start an agent finds in the tables what an earlier one left, and takes it up as the table
 * in resume.h says: what is here, as a unit that nobody has claimed (it uses its addresses; it ends
 * when its sockets have, ending.c); what was coming, as a move in doubt. Their applications bring
 * the descriptors (resume.c).
 */
#include <errno.h>
#include <string.h>
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

static int adopt_unit(struct agent *a, uint32_t index, const struct ferry_record *r)
{
	struct unit *u = unit_new(a, NULL, 0, r->flows);

	if (!u)
		return -ENOMEM;
	unit_place(a, u, index);
	u->moved = r->role != FERRY_ROLE_NONE;
	memcpy(u->uuid, r->uuid, 16);
	u->space = space_hold(a, r->netns);
	return u->space ? 0 : -ENOMEM;
}

/* PREPARED, or OPENING: then the origin has flipped. */
static int adopt_move(struct agent *a, uint32_t index, const struct ferry_record *r)
{
	struct move *m = move_new(a, false, r->uuid, r->flows);

	if (!m)
		return -ENOMEM;
	memcpy(m->id, r->move_id, 16);
	m->peer = r->peer;
	m->index = index;
	m->epoch = r->attempt;
	m->prepared = true;
	m->tombstone = r->held;
	m->lost_before = r->lost;
	m->told_flip = FERRY_WORD_STATE(unit_word(&a->dp, index)) == FERRY_OPENING;
	m->space = space_hold(a, r->netns);
	return m->space ? move_arm(m, IN_DOUBT_MS) : -ENOMEM;
}

static int adopt(struct agent *a, uint32_t index)
{
	const struct ferry_record *r = unit_record(&a->dp, index);
	uint32_t state = FERRY_WORD_STATE(unit_word(&a->dp, index));
	bool here = state == FERRY_LOCAL || state == FERRY_FENCED || state == FERRY_OPENING ||
		    state == FERRY_PREPARED;
	char uuid[UUID_TEXT];

	if (!here || !r->flows || r->flows > FERRY_UNIT_SOCKETS)
		return 0;
	if (state != FERRY_LOCAL)
		log_info("unit %s was left %s by an earlier agent: waiting for its application",
			 uuid_text(r->uuid, uuid), state_name(state));
	if (state == FERRY_PREPARED ||
	    (state == FERRY_OPENING && r->role == FERRY_ROLE_DESTINATION))
		return adopt_move(a, index, r);
	return adopt_unit(a, index, r);
}

static struct move *move_by_index(struct agent *a, uint32_t index)
{
	for (struct move *m = a->moves; m; m = m->next)
		if (m->index == index)
			return m;
	return NULL;
}

/* An agent that died between word and flows left fewer of them than the record says. */
static int take_flow(const struct ferry_flow *flow, uint32_t index, void *arg)
{
	struct agent *a = arg;
	struct unit *u = unit_by_index(a, index);
	struct move *m = u ? NULL : move_by_index(a, index);

	if (u && u->taken < u->count)
		u->flows[u->taken++] = *flow;
	if (m && m->vips < m->count)
		m->images[m->vips++].flow = *flow;
	return 0;
}

/* What is not deliverable (any more) is said, and the unit kept: its device may come back. */
static void deliver(struct agent *a)
{
	for (struct unit *u = a->units; u; u = u->next) {
		u->count = u->taken;
		if (unit_deliver(a, u))
			log_warning("a unit's address cannot be made deliverable again");
	}
	for (struct move *m = a->moves; m; m = m->next) {
		m->count = m->vips;
		for (unsigned int i = 0; i < m->count; i++)
			space_deliver(a, m->space, m->images[i].flow.daddr);
	}
}

int units_adopt(struct agent *a)
{
	int r = 0;

	for (uint32_t i = 1; !r && i < a->dp.control.units; i++)
		r = adopt(a, i);
	r = r ? r : table_walk(&a->dp.flows, take_flow, a);
	if (!r)
		deliver(a);
	return r;
}
