// SPDX-License-Identifier: BSD-2-Clause
/*
 * What both listeners have in common. Without a descriptor to spare the connection stays in the
 * backlog, so that the loop would find the listener readable again at once, and do nothing else.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "agent/agent.h"
#include "base/log.h"

bool is_listener(int fd, int type)
{
	int is_type = 0, accepts = 0;
	socklen_t size = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &is_type, &size) && is_type == type &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) && accepts;
}

#define FULL_US 100000

static int on_time(sd_event_source *s, uint64_t usec, void *arg)
{
	(void)usec;
	sd_event_source_set_enabled(arg, SD_EVENT_ON);
	sd_event_source_unref(s);
	return 0;
}

void accept_later(sd_event_source *listener, int error)
{
	sd_event_source *timer;

	if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS)
		return; /* of that one connection */
	log_warning("cannot accept a connection: %s", strerror(error));
	if (sd_event_add_time_relative(sd_event_source_get_event(listener), &timer, CLOCK_MONOTONIC,
				       FULL_US, 0, on_time, listener) >= 0)
		sd_event_source_set_enabled(listener, SD_EVENT_OFF);
}
