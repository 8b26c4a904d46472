/* SPDX-License-Identifier: BSD-2-Clause */
/* What store.c, which gives away, and restore.c, which takes back, agree on. */
#ifndef GUARD_STORE_H
#define GUARD_STORE_H

#include "guard/guard.h"

#define STATE_MAX 0x800000 /* octets of one of the two copies: 1024 ports with all their listeners */
#define STATE_LAYOUT 3 /* of what is in it, and in the maps of include/ferry/listener.h */
#define STORE_NAME 64
#define GROUP_FDS 5 /* of a group, without its holders */

struct store {
	int fd; /* of the state */
	uint64_t turn; /* of the state written last; odd ones are the second copy */
};
extern struct store store;

/* The descriptors of a group, and of the agent itself, by the names that they have there. */
void store_each(struct group *g, void (*call)(const char *name, int *fd));
void store_each_own(struct daemon *d, void (*call)(const char *name, int *fd));
const char *store_netns_name(const struct guard *g, char name[STORE_NAME]);

#endif
