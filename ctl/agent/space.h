/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Network namespaces that sockets of units are in: the agent's own, or one of an application that
 * has lent a sock_diag socket made there. Counted: whoever keeps a pointer holds it.
 */
#ifndef AGENT_SPACE_H
#define AGENT_SPACE_H

#include "agent/agent.h"

struct space {
	struct space *next;
	uint64_t cookie;
	bool own;
	int diag; /* -1: the agent's own, or nobody has lent one (yet) */
	unsigned int users;
};

/* NULL: no memory. */
struct space *space_hold(struct agent *a, uint64_t cookie);
struct space *space_again(struct space *s);
void space_release(struct agent *a, struct space *s);
/* Keeps a copy of the descriptor, where there is none yet. */
void space_lend_diag(struct space *s, int diag);
/* 1, 0, or -errno: -ENOTCONN where nobody can be asked. */
int space_has_socket(const struct space *s, const struct ferry_flow *flow);
/* Packets for this address that reach the node get there: on lo, where it is the agent's own; else
 * the host has to have routed it, which is only looked at. 0 or -errno. */
int space_deliver(struct agent *a, const struct space *s, const uint8_t addr[16]);
void space_undeliver(struct agent *a, const struct space *s, const uint8_t addr[16]);
/* The device that leads there, for the record; 0 in the agent's own, or where none does. */
uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16]);

#endif
