/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who may do what at the UNIX socket. A user is what the kernel said of the connection when it was
 * made (SO_PEERCRED). Who can open the socket may register and offer, within bounds, so that one
 * user cannot keep the others out; what is refused is logged with uid and pid.
 */
#ifndef AGENT_ACCESS_H
#define AGENT_ACCESS_H

#include "agent/app.h"
#include "move/unit.h"

/* Warns of users that are not known on this node. */
void access_check(const struct config *c);
uid_t app_uid(const struct app *app);
/* Whether that user is bounded: not root, not the agent's own, not named by an [application]. */
bool access_bounded(const struct agent *a, uid_t uid);
/* May app register as this kind? 0; -EACCES (the kind is another user's), -EEXIST (it is taken),
 * -EDQUOT (this user has as many as it may). */
int access_register(const struct app *app, const char *kind);
/* May this unit, identified and in the agent's list, be taken? 0 or -EDQUOT. */
int access_offer(struct agent *a, const struct unit *u);
/* May who is at the other end of this socket order the unit about? 0 or -EACCES. */
int access_command(int fd, const struct unit *u, const char *command);

#endif
