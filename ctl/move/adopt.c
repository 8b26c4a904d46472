// SPDX-License-Identifier: BSD-2-Clause
/*
 * At its start an agent finds what an earlier one left in the tables. A unit that lives here is
 * kept as one that was given up: it uses its addresses, an application may offer it again, and it
 * ends when its sockets have (ending.c). One in mid-move is left as it is, and said.
 */
#include <errno.h>
#include <string.h>
#include "base/log.h"
#include "base/util.h"
#include "move/unit.h"

static int take_flow(const struct ferry_flow *flow, uint32_t index, void *arg)
{
	struct agent *a = arg;
	struct unit *u = unit_by_index(a, index);

	/* count is what the record says until all are in */
	for (unsigned int i = 0; u && i < u->count; i++) {
		if (u->flows[i].proto)
			continue;
		u->flows[i] = *flow;
		return vip_acquire(a, flow->daddr);
	}
	return 0;
}

static int adopt(struct agent *a, uint32_t index)
{
	const struct ferry_record *r = unit_record(&a->dp, index);
	uint32_t state = FERRY_WORD_STATE(unit_word(&a->dp, index));
	char uuid[UUID_TEXT];
	struct unit *u;

	if (state == FERRY_FENCED || state == FERRY_PREPARED || state == FERRY_OPENING)
		log_warning("unit %s was left %s by an earlier agent: its move is not finished",
			    uuid_text(r->uuid, uuid), state_name(state));
	if (state != FERRY_LOCAL || !r->flows || r->flows > FERRY_UNIT_SOCKETS)
		return 0;
	u = unit_new(a, NULL, 0, r->flows);
	if (!u)
		return -ENOMEM;
	u->index = index;
	u->moved = true;
	memcpy(u->uuid, r->uuid, 16);
	return 0;
}

/* An agent that died between word and flows left fewer of them. */
static void cut(struct unit *u)
{
	unsigned int n = 0;

	while (n < u->count && u->flows[n].proto)
		n++;
	u->count = n;
}

int units_adopt(struct agent *a)
{
	int r = 0;

	for (uint32_t i = 1; !r && i < a->dp.control.units; i++)
		r = adopt(a, i);
	r = r ? r : table_walk(&a->dp.flows, take_flow, a);
	for (struct unit *u = a->units; u; u = u->next)
		cut(u);
	return r;
}
