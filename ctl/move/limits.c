// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a node may ask of this one, judged before anything is kept for it. Whatever it asks, it can
 * at most make its own moves fail.
 */
#include <string.h>
#include "move/image.h"
#include "move/move.h"

/* From one node at a time; each socket is a descriptor here, and one of an application. */
#define MOVES_NODE 1024
#define SOCKETS_NODE 16384

bool move_admits(struct agent *a, uint32_t node, enum message type, const Peer__Move *msg,
		 uint32_t size)
{
	if (type != MSG_PREPARE || images_trailer(msg) != size)
		return false;
	for (const struct move *m = a->moves; m; m = m->next)
		if (!m->origin && m->peer == node && !memcmp(m->id, msg->move_id.data, 16) &&
		    !memcmp(m->uuid, msg->uuid.data, 16))
			return m->fds[0] >= 0; /* lent, so READY was said */
	return false;
}

bool moves_crowded(const struct agent *a, uint32_t node)
{
	unsigned int moves = 0, sockets = 0;

	for (const struct move *m = a->moves; m; m = m->next) {
		if (m->origin || m->peer != node)
			continue;
		moves++;
		sockets += m->count;
	}
	return moves >= MOVES_NODE || sockets >= SOCKETS_NODE;
}

unsigned int moves_count(const struct agent *a)
{
	unsigned int n = 0;

	for (const struct move *m = a->moves; m; m = m->next)
		n++;
	return n;
}
