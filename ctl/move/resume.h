/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an agent finishes that another one began. At its start it reads words and records (adopt.c):
 * a unit that lives here is kept, a move away from here waits for its application, and one to here
 * becomes a move without descriptors, in doubt. The application brings them (ferry/app.h, RESUME):
 *
 *   word       role          its sockets are back                    they are gone from the kernel
 *   LOCAL                    the unit goes on                        it has ended: withdrawn
 *   FENCED     origin        not flipped: OPENING, thawed, LOCAL     GONE, which is a "no" too
 *   OPENING    origin        the abort goes on: thawed, LOCAL        withdrawn
 *   REMOTE     origin        flipped: closed, silently               nothing to do
 *   PREPARED   destination   the origin is asked; thaw or discard    discarded
 *   OPENING    destination   the thaw goes on, LOCAL, GO             discarded
 */
#ifndef MOVE_RESUME_H
#define MOVE_RESUME_H

#include <ferry/app.h>
#include "move/move.h"

struct resumed {
	struct app *app;
	uint32_t handle;
	enum ferry_app_resume was;
	const uint8_t *uuid;
	int *fds; /* what is kept of them is -1 afterwards */
	unsigned int count;
	const struct ferry_app_socket *sockets;
	int bundle; /* memfd of a lent set, -1 none */
};

/* Answers the application, or says in *refusal why not. -errno: it cannot be judged now; a refusal
 * were the end of the unit, so that the connection has to end, after which it comes again. */
int resume(struct agent *a, struct resumed *r, const char **refusal);

#endif
