// SPDX-License-Identifier: BSD-2-Clause
/*
 * A unit that its application has given up is not gone: its sockets still say goodbye, and the
 * client's answers must find them. Its entries and addresses go, and the other nodes are told,
 * when the kernel holds none of its sockets any more, TIME_WAIT included. So it is with a unit of
 * an earlier agent, until an application offers it again.
 */
#include <errno.h>
#include <netinet/in.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"
#include "move/unit.h"
#include "net/diag.h"

#define LOOK_US 250000

static bool ended(const struct unit *u)
{
	for (unsigned int i = 0; i < u->count; i++)
		if (diag_has_socket(&u->flows[i]))
			return false; /* there, or not known now */
	return true;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
	struct agent *a = arg;

	(void)usec;
	for (struct unit *u = a->units, *next; u; u = next) {
		next = u->next;
		if (!u->app && !u->move && ended(u))
			unit_withdraw(a, u);
	}
	sd_event_source_set_time_relative(s, LOOK_US);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

int ending_start(struct agent *a)
{
	int r = sd_event_add_time_relative(a->event, NULL, CLOCK_MONOTONIC, LOOK_US, 0, on_timer, a);

	return r < 0 ? r : 0;
}
