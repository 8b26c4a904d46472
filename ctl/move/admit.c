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

bool address_moves(const struct agent *a, const uint8_t addr[16])
{
	static const uint8_t zero[16], loopback[16] = { [15] = 1 };
	const struct config *c = &a->config;

	if (addr_is_v4(addr) ? !addr[12] || addr[12] == 127 || addr[12] >= 224 :
			       !memcmp(addr, zero, 16) || !memcmp(addr, loopback, 16) ||
				       addr[0] == 0xff || (addr[0] == 0xfe && addr[1] >> 6 == 2))
		return false;
	for (unsigned int i = 0; i < c->n_nodes; i++)
		for (unsigned int k = 0; k < c->nodes[i].addresses; k++)
			if (!memcmp(c->nodes[i].address[k], addr, 16))
				return false;
	return true;
}

/* The origin hears which epoch it has to be above. */
static int epoch_behind(struct move *m, uint64_t word)
{
	m->newer = FERRY_WORD_EPOCH(word);
	return move_refuse(m, "epoch-behind", "epoch %u is held here, the move has %u", m->newer,
			   m->epoch + 1);
}

int admit_unit(struct move *m)
{
	struct agent *a = m->agent;
	uint64_t word;

	m->index = unit_by_uuid(&a->dp, m->uuid);
	m->tombstone = m->index != 0;
	if (!m->index)
		return STAGE_DONE;
	word = unit_word(&a->dp, m->index);
	if ((FERRY_WORD_STATE(word) != FERRY_REMOTE && FERRY_WORD_STATE(word) != FERRY_GONE) ||
	    unit_by_index(a, m->index))
		return move_refuse(m, "tuple-busy", "the unit is %s here",
				   state_name(FERRY_WORD_STATE(word)));
	return FERRY_NEWER(m->epoch + 1, FERRY_WORD_EPOCH(word)) ? STAGE_DONE :
								   epoch_behind(m, word);
}

/* A flow that has an entry here must be the unit's own tombstone, or an old one of nobody's. */
int admit_flow(struct move *m, unsigned int i)
{
	struct agent *a = m->agent;
	uint32_t held = table_find(&a->dp.flows, &m->images[i].flow);
	uint64_t word = held ? unit_word(&a->dp, held) : 0;
	char flow[FLOW_TEXT];

	if (!held || held == m->index)
		return STAGE_DONE;
	flow_text(&m->images[i].flow, flow);
	if ((FERRY_WORD_STATE(word) != FERRY_REMOTE && FERRY_WORD_STATE(word) != FERRY_GONE) ||
	    unit_by_index(a, held))
		return move_refuse(m, "tuple-busy", "%s belongs to another unit here", flow);
	return FERRY_NEWER(m->epoch + 1, FERRY_WORD_EPOCH(word)) ? STAGE_DONE :
								   epoch_behind(m, word);
}

/* Asked twice: what is held here may be dropped, or taken over, until the unit is PREPARED. */
int admit_tables(struct move *m)
{
	int r = admit_unit(m);

	for (unsigned int i = 0; !r && i < m->count; i++)
		r = admit_flow(m, i);
	return r;
}

int admit_space(struct move *m)
{
	struct table *t = &m->agent->dp.flows;
	uint32_t wanted[2] = {};

	for (unsigned int i = 0; i < m->count; i++)
		wanted[flow_is_v6(&m->images[i].flow)] += !table_find(t, &m->images[i].flow);
	if (wanted[0] > table_room(t, false) || wanted[1] > table_room(t, true))
		return move_refuse(m, "table-full", "%u IPv4 and %u IPv6 flows, room for %u and %u",
				   wanted[0], wanted[1], table_room(t, false), table_room(t, true));
	return STAGE_DONE;
}

/* Found out, and waited for, now and not in the freeze. */
int admit_room(struct move *m)
{
	int r = admit_space(m);

	if (!r && table_settle(&m->agent->dp.flows))
		return move_refuse(m, "no-memory", "no grace period");
	return r;
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

/* From an address that may be made ours; *mtu: of the route to the client, 0 not known. */
int admit_way(struct move *m, unsigned int i, uint32_t packet, uint32_t *mtu)
{
	struct agent *a = m->agent;
	const struct ferry_flow *f = &m->images[i].flow;
	struct rtnl_route route;
	struct rtnl_link link;
	int r;

	*mtu = 0;
	if (!address_moves(a, f->daddr))
		return move_refuse(m, "addr-node-local", "socket %u", i);
	if (!f->sport)
		return STAGE_DONE; /* a bound port: its clients are not known */
	r = rtnl_route(&a->rtnl, f->saddr, &route);
	r = r ? r : rtnl_link(&a->rtnl, route.ifindex, &link);
	m->images[i].step = "route";
	if (r)
		return destination_socket_failed(m, i, r);
	*mtu = route.mtu ? route.mtu : link.mtu;
	if (*mtu < packet)
		return move_refuse(m, "mtu-smaller",
				   "the route to the client has an MTU of %u, packets may have %u "
				   "octets",
				   *mtu, packet);
	return STAGE_DONE;
}

/* The tunnel to us was measured by the origin; this is the way back to the client. */
int admit_way_back(struct move *m, const Peer__Move *msg)
{
	uint32_t mtu;
	int r = STAGE_DONE;

	for (unsigned int i = 0; !r && i < m->count; i++)
		r = admit_way(m, i, msg->packet, &mtu);
	return r;
}
