// SPDX-License-Identifier: BSD-2-Clause
/* Refusals by id, see refusal.h. */
#include <string.h>
#include "base/util.h"
#include "move/refusal.h"

static const struct {
	const char *id, *text;
} refusals[] = {
#define X(id, text) { id, text },
	REFUSALS(X)
#undef X
};

const char *refusal_text(const char *id)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(refusals); i++)
		if (!strcmp(refusals[i].id, id))
			return refusals[i].text;
	return id;
}

const char *refusal_id(const char *id)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(refusals); i++)
		if (!strcmp(refusals[i].id, id))
			return refusals[i].id;
	return "protocol";
}
