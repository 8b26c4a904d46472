/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the witness and its readers agree on: layouts of maps, numbers of counts, records of the
 * ring. A close is a TCP socket that stops to listen, by whatever way, with the end of all that was
 * queued in it.
 */
#ifndef FERRY_WITNESS_H
#define FERRY_WITNESS_H

#include <linux/types.h>

#define WITNESS_LAYOUT 1
#define WITNESS_ROWS 4096    /* addresses; what finds no room is counted in no_row */
#define WITNESS_SOCKETS 1024 /* the last sockets that stopped to listen */
#define WITNESS_CLOSING 1024 /* closes under way; what finds no room is counted in unseen */
#define WITNESS_RING (1 << 20)
#define WITNESS_COMM 16

/* queued = reset + half_closed + gone + migrated. */
#define WITNESS_COUNTS(X)                                                                          \
	X(CLOSES, "closes", "times that it stopped to listen")                                     \
	X(QUEUED, "queued", "connections that nobody had accepted then")                           \
	X(RESET, "reset", "of these, reset")                                                       \
	X(HALF_CLOSED, "half_closed", "reset after the client had closed its side")                \
	X(GONE, "gone", "ended, their client had gone before")                                     \
	X(MIGRATED, "migrated", "given to another listener")                                       \
	X(HALF_OPEN, "half_open", "handshakes under way then, of which no more is known")

enum witness_count {
#define X(id, name, text) WITNESS_##id,
	WITNESS_COUNTS(X)
#undef X
	WITNESS_COUNT
};

/* Where it listened. Addresses are 16 octets, IPv4 as v4-mapped IPv6; port in host order. */
struct witness_key {
	__u64 netns; /* cookie */
	__u8 addr[16];
	__u16 port;
	__u16 pad[3];
};
_Static_assert(sizeof(struct witness_key) == 32, "no hidden padding in a key");

/* By close() or the end of the process; by shutdown() or connect(AF_UNSPEC); by SOCK_DESTROY. */
enum witness_way { WITNESS_CLOSED, WITNESS_SHUT_DOWN, WITNESS_DESTROYED };

enum witness_kind { WITNESS_CLOSE, WITNESS_CLIENT };

/* Of a row: the last one's process, way and time, and all counts. */
struct witness_close {
	__u32 kind; /* WITNESS_CLOSE */
	__u32 way;
	__u64 at; /* CLOCK_BOOTTIME, when it had ended */
	struct witness_key key;
	__u64 cookie; /* of the socket */
	__u32 pid;    /* whose thread closed it: of several that had it, the last */
	__u32 pad;
	char comm[WITNESS_COMM];
	__u64 n[WITNESS_COUNT];
};

/* A client that was reset in a close; it comes before the record of that. */
struct witness_client {
	__u32 kind; /* WITNESS_CLIENT */
	__u32 count; /* under which it is: RESET or HALF_CLOSED */
	struct witness_key key;
	__u64 cookie; /* of the listener */
	__u8 local[16], remote[16];
	__u16 local_port, remote_port; /* host order */
	__u32 pad;
};

/* One. Times are CLOCK_BOOTTIME, 0 not yet. */
struct witness_state {
	/* the process writes that has loaded it */
	__u32 layout;
	__u32 pid;
	__u32 clients; /* 1: each client that is reset goes into the ring */
	__u32 pad;
	__u64 begun;
	__u64 alive; /* when it last said that it still is */
	__u64 ended; /* when it took it off */
	/* the witness writes */
	__u64 n[WITNESS_COUNT]; /* of all closes */
	__u64 no_row;  /* closes that are in n, and in no row */
	__u64 unseen;  /* closes that are nowhere else */
	__u64 unsaid;  /* records that the ring had no room for */
	__u64 strays;  /* un-accepted connections ended, of no close that was seen */
};

#endif
