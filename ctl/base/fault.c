// SPDX-License-Identifier: BSD-2-Clause
/* Fault points, see fault.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "fault.h"
#include "log.h"

static const char *const names[] = {
#define X(id, name) name,
	FAULTS(X)
#undef X
};
static uint32_t values[FAULT_COUNT];

static int set(char *item)
{
	char *value = strchr(item, '=');

	if (value)
		*value++ = 0;
	for (int i = 0; i < FAULT_COUNT; i++) {
		if (strcmp(item, names[i]))
			continue;
		values[i] = value ? (uint32_t)strtoul(value, NULL, 10) : 1;
		log_warning("fault point %s=%u is set", item, values[i]);
		return 0;
	}
	log_error("FERRY_FAULT: no fault point '%s'", item);
	return -EINVAL;
}

int fault_init(void)
{
	const char *list = getenv("FERRY_FAULT");
	_cleanup_free_ char *copy = list ? strdup(list) : NULL;
	char *rest = copy;

	for (char *item; rest && (item = strsep(&rest, ","));) {
		int r = *item ? set(item) : 0;

		if (r)
			return r;
	}
	return 0;
}

uint32_t fault(enum fault point)
{
	return values[point];
}

void fault_die(enum fault point, uint32_t place)
{
	if (values[point] == place + 1)
		raise(SIGKILL);
}
