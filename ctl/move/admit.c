// SPDX-License-Identifier: BSD-2-Clause
/*
 * Can this unit come here? Asked at PREFLIGHT, of the tables and of the way back to the client;
 * of the tables once more at PREPARE. Nothing is changed but by admit_drop_old().
 */
#include <errno.h>
#include <string.h>
#include "base/util.h"
#include "move/move.h"
#include "move/refusal.h"

/* The origin hears which epoch it has to be above. */
static int epoch_behind(struct move *m, uint64_t word)
{
	m->newer = FERRY_WORD_EPOCH(word);
	return move_refuse(m, "epoch-behind", "epoch %u is held here, the move has %u", m->newer,
			   m->epoch + 1);
}

/* A flow that has an entry here must be the unit's own tombstone, or an old one of nobody's. Asked
 * twice: what is held here may be dropped, or taken over, until the unit is PREPARED. */
int admit_tables(struct move *m)
{
	struct agent *a = m->agent;

	m->index = unit_by_uuid(&a->dp, m->uuid);
	m->tombstone = m->index != 0;
	if (m->index) {
		uint64_t word = unit_word(&a->dp, m->index);

		if ((FERRY_WORD_STATE(word) != FERRY_REMOTE &&
		     FERRY_WORD_STATE(word) != FERRY_GONE) ||
		    unit_by_index(a, m->index))
			return move_refuse(m, "tuple-busy", "the unit is %s here",
					   state_name(FERRY_WORD_STATE(word)));
		if (!FERRY_NEWER(m->epoch + 1, FERRY_WORD_EPOCH(word)))
			return epoch_behind(m, word);
	}
	for (unsigned int i = 0; i < m->count; i++) {
		uint32_t held = table_find(&a->dp.flows, &m->images[i].flow);
		uint64_t word = held ? unit_word(&a->dp, held) : 0;
		char flow[FLOW_TEXT];

		if (!held || held == m->index)
			continue;
		flow_text(&m->images[i].flow, flow);
		if ((FERRY_WORD_STATE(word) != FERRY_REMOTE &&
		     FERRY_WORD_STATE(word) != FERRY_GONE) ||
		    unit_by_index(a, held))
			return move_refuse(m, "tuple-busy", "%s belongs to another unit here",
					   flow);
		if (!FERRY_NEWER(m->epoch + 1, FERRY_WORD_EPOCH(word)))
			return epoch_behind(m, word);
	}
	return STAGE_DONE;
}

/* Found out, and waited for, now and not in the freeze. */
int admit_room(struct move *m)
{
	struct table *t = &m->agent->dp.flows;
	uint32_t wanted[2] = {};

	for (unsigned int i = 0; i < m->count; i++)
		wanted[flow_is_v6(&m->images[i].flow)] += !table_find(t, &m->images[i].flow);
	if (wanted[0] > table_room(t, false) || wanted[1] > table_room(t, true))
		return move_refuse(m, "table-full", "%u IPv4 and %u IPv6 flows, room for %u and %u",
				   wanted[0], wanted[1], table_room(t, false), table_room(t, true));
	if (table_settle(t))
		return move_refuse(m, "no-memory", "no grace period");
	return STAGE_DONE;
}

/* What admit_tables() found to be an earlier connection's. */
void admit_drop_old(struct move *m)
{
	struct agent *a = m->agent;

	for (unsigned int i = 0; i < m->count; i++) {
		uint32_t held = table_find(&a->dp.flows, &m->images[i].flow);

		if (held && held != m->index)
			unit_drop(a, held);
	}
}

/* The tunnel to us was measured by the origin; this is the way back to the client, from an address
 * that may be made ours. */
int admit_way_back(struct move *m, const Peer__Move *msg)
{
	struct agent *a = m->agent;

	for (unsigned int i = 0; i < m->count; i++) {
		const struct ferry_flow *f = &m->images[i].flow;
		struct rtnl_route route;
		struct rtnl_link link;
		int r;

		if (!address_moves(a, f->daddr))
			return move_refuse(m, "addr-node-local", "socket %u", i);
		if (!f->sport)
			continue; /* a bound port: its clients are not known */
		r = rtnl_route(&a->rtnl, f->saddr, &route);
		r = r ? r : rtnl_link(&a->rtnl, route.ifindex, &link);
		m->images[i].step = "route";
		if (r)
			return destination_socket_failed(m, i, r);
		if ((route.mtu ? route.mtu : link.mtu) < msg->packet)
			return move_refuse(m, "mtu-smaller",
					   "the route to the client has an MTU of %u, packets may "
					   "have %u octets",
					   route.mtu ? route.mtu : link.mtu, msg->packet);
	}
	return STAGE_DONE;
}
