/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SIGHUP: the program that is installed now takes this one's place in the same process, by exec,
 * and reads the configuration anew. What must not be let go meanwhile is handed on as descriptors,
 * the way a service manager does it (sd_listen_fds(3)): the locked pin directory, so that no other
 * agent of this node can come in between, and both listeners, so that nobody is refused. All else
 * the next agent finds in the tables, as after any end (move/resume.h).
 */
#ifndef AGENT_UPGRADE_H
#define AGENT_UPGRADE_H

#include "agent/agent.h"

enum handed { HANDED_PINS, HANDED_APP, HANDED_NODE, HANDED_COUNT };

/* At the start of the process: takes what was handed on. */
void upgrade_take(void);
/* That descriptor, whose owner is the caller from here on; -1 none. */
int upgrade_handed(enum handed which);
/* Before the loop: SIGHUP upgrades from now on. argv: the process's. 0 or -errno. */
int upgrade_start(struct agent *a, char **argv, const char *config_path);
/* A listener for upgrade to hand on: a copy of it is kept. */
void upgrade_keep(enum handed which, int fd);

#endif
