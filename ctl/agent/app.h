/* SPDX-License-Identifier: BSD-2-Clause */
/* Applications connected to the agent, as units and moves see them. */
#ifndef AGENT_APP_H
#define AGENT_APP_H

#include <sys/types.h>
#include <ferry/app.h>
#include "agent/agent.h"

struct app;

const char *app_kind(const struct app *app);
pid_t app_pid(const struct app *app);
/* The network namespace of its sockets. */
struct space *app_space(const struct app *app);
struct app *app_by_kind(struct agent *a, const char *kind);
/* Whether its connection still stands (asked of the kernel, now). */
bool app_alive(const struct app *app);

/* One message without descriptors. 0 or -errno. */
int app_send(struct app *app, const struct ferry_app_message *m);
/* The same with an id and a text ("" none). */
int app_say(struct app *app, enum ferry_app_type type, uint32_t id, const uint8_t uuid[16],
	    const char *text);
/* GO or DISCARD: by request, or, of a resumed set, request 0 and its handle. */
int app_say_lent(struct app *app, enum ferry_app_type type, uint32_t request, uint32_t handle,
		 const uint8_t uuid[16]);

#endif
