/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs at a guarded listener and its guard agree on: layouts of maps, numbers of
 * counts. A group is what the kernel makes of all listeners of one network namespace, address, port
 * and user with SO_REUSEPORT.
 */
#ifndef FERRY_LISTENER_H
#define FERRY_LISTENER_H

#include <linux/types.h>

/* A kind: listeners whose options do not differ in a way that matters to who accepts from them. */
#define LISTENER_KINDS 4
/* Slots of a group's socket array: two holders of each kind, one of them in use, then members. */
#define LISTENER_SLOTS 64
#define LISTENER_FIRST (2 * LISTENER_KINDS)

/* One, of a group. */
struct listener_group {
	__u32 hold[LISTENER_KINDS]; /* slot of the holder in use */
	__u32 kind;    /* whose holder takes new connections */
	__u32 working; /* the generation that takes new connections */
	__u32 open;    /* no 1: members are written, all goes to the holder */
	__u32 mixed;   /* 1: what one kind has not accepted, another may */
	__u32 waits;   /* 1: who is not of the working generation is given nothing but its own kin's */
	__u32 kick_slot; /* who is given what comes from this port: it is to be woken */
	__u32 kick_port; /* network order; 0: nobody */
};

/* One a slot; a holder, and a slot without a listener, has weight 0. */
struct listener_slot {
	__u32 generation;
	__u32 weight;
	__s32 room; /* what its backlog still takes: as last asked, less what migrated to it since */
	__u32 kind;
	__u64 cookie; /* of its socket */
};

#define LISTENER_COUNTS(X)                                                                         \
	X(SYN_MEMBER, "syn_member", "new connections given to a server")                           \
	X(SYN_HELD, "syn_held", "new connections held")                                            \
	X(ALIVE, "alive", "un-accepted connections of a closed listener given to another")         \
	X(DEAD, "dead", "the same, whose client had gone already")                                 \
	X(HELD, "held", "un-accepted connections of a closed listener held")                       \
	X(CANCELLED, "cancelled", "un-accepted connections that nobody could be given")            \
	X(HALF_OPEN, "half_open", "handshakes at a closed listener given to another, or held")     \
	X(HALF_CANCELLED, "half_cancelled", "the same, that nobody could be given")                \
	X(KICKED, "kicked", "connections of ferry's own that woke a server")

enum listener_count {
#define X(id, name, text) LISTENER_##id,
	LISTENER_COUNTS(X)
#undef X
	LISTENER_COUNT
};

/* A port of a network namespace that is guarded, or is to be. Host order. */
struct listener_port {
	__u64 netns; /* cookie */
	__u32 port;
	__u32 pad;
};

enum { LISTENER_KNOWN, LISTENER_LEARN }; /* LEARN: whoever listens is stopped until it is guarded */

/* What is said of a guarded port. */
struct listener_event {
	struct listener_port at;
	__u32 pid;
	__u32 listens; /* or has stopped to */
};

#endif
