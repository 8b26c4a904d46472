/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking a node off: what --detach does instead of serving. */
#ifndef AGENT_DETACH_H
#define AGENT_DETACH_H

#include <stdbool.h>
#include <stdint.h>
#include "agent/rights.h"

/* Returns the exit code: 0 done, 1 failed or refused, 3 there is nothing. Says which, and why. */
int detach_node(const char *node, const char *socket, bool force);

/* For struct dataplane's filters; arg: struct rtnl. */
int detach_filters(void *arg, uint32_t ifindex);

/* The directory of the default sockets. What we made we may remove, once it is empty. */
void run_dir_make(const struct rights_user *user);
void run_dir_remove(void);

#endif
