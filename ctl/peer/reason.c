// SPDX-License-Identifier: BSD-2-Clause
/* Ids and sentences of the list in reason.h. */
#include "peer/reason.h"

static const struct {
	const char *id, *text;
} reasons[PEER_REASONS] = {
	[PEER_NONE] = { "", "" },
#define X(name, id, text) [PEER_##name] = { id, text },
	PEER_REASON_LIST(X)
#undef X
};

const char *peer_reason_id(enum peer_reason r)
{
	return reasons[r < PEER_REASONS ? r : PEER_NONE].id;
}

const char *peer_reason_text(enum peer_reason r)
{
	return reasons[r < PEER_REASONS ? r : PEER_NONE].text;
}
