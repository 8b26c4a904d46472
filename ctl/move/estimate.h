/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a freeze is expected to last: so much a move, a socket and an octet that is carried,
 * times what this agent's own last moves took by that measure. Values only. It is an estimate:
 * load, the way between the nodes and queues that grow until the fence are not in it.
 */
#ifndef MOVE_ESTIMATE_H
#define MOVE_ESTIMATE_H

#include <stdint.h>

/* Fitted to moves between two nodes on one machine: 1 to 250 sockets, up to 27 MB in the queues. */
#define ESTIMATE_FIXED_US 110.0
#define ESTIMATE_SOCKET_US 36.0
#define ESTIMATE_OCTET_NS 6.5

#define ESTIMATE_KEPT 15

struct estimate {
	double ratio[ESTIMATE_KEPT]; /* measured by expected, of the last moves */
	unsigned int count;          /* of all */
};

/* A move of this agent froze for us. */
void estimate_learn(struct estimate *e, double us, unsigned int sockets, uint64_t octets);
/* The median of the ratios that are kept, 1 where none is. */
double estimate_factor(const struct estimate *e);
double estimate_freeze_us(const struct estimate *e, unsigned int sockets, uint64_t octets);

#endif
