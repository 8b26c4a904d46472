/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of libferry share. Units are on one list; a lent set is a unit not gone yet. What
 * the agent has not been told of a unit, for its socket was full or there was no agent, is marked
 * on the unit and follows (resume.c).
 */
#ifndef LIB_H
#define LIB_H

#include <stdbool.h>
#include <ferry.h>
#include <ferry/app.h>

enum unit_state {
	UNIT_OFFERED, /* waiting for the agent's answer */
	UNIT_OURS,
	UNIT_QUIESCED,  /* asked to, or ready */
	UNIT_LENT,      /* empty sockets, waiting for GO */
	UNIT_WITHDRAWN, /* which the agent could not be told yet */
};

/* Socket options that a freeze changes; -1: not read, or not there. */
struct kept {
	int reuseaddr, keepalive, user_timeout, peek_off, oobinline;
};

struct ferry_unit {
	struct ferry_unit *next;
	struct ferry *ferry;
	enum unit_state state;
	bool busy;      /* in a callback: freed when it returns */
	bool withdrawn; /* in that callback */
	bool untold;    /* OFFER, WITHDRAW or RESUME, by its state, is still to be sent */
	bool resuming;  /* RESUME was sent */
	bool has_kept;
	uint32_t handle, request;
	uint8_t uuid[16];
	unsigned int count;
	int *fds;
	char (*roles)[16];
	struct kept *kept;
	void *data;
	int bundle;         /* memfd, -1 none */
	const uint8_t *map; /* the bundle, while arrived() runs */
	size_t map_size;
	uint64_t *next_datagram; /* per socket: offset in map */
	uint32_t *datagrams;     /* per socket: left */
};

enum link_state { LINK_DOWN, LINK_GREETING, LINK_UP };

struct ferry {
	int epoll; /* of the two below: what the application polls */
	int fd, timer;
	enum link_state link;
	uint32_t retry_ms;
	char path[108], kind[32];
	uint32_t next_handle;
	const struct ferry_ops *ops;
	void *arg;
	struct ferry_unit *units;
	unsigned int untold; /* units of which something is */
	bool again;          /* the timer is for them */
};

struct ferry_unit *lib_unit_new(struct ferry *f, unsigned int count);
/* Takes it off the list and frees it; descriptors are left alone. */
void lib_unit_free(struct ferry_unit *u);

/* One message, with descriptors beside it. 0 or -errno. */
int lib_send(struct ferry *f, const struct ferry_app_message *m, size_t size, const int *fds,
	     unsigned int count);
int lib_say(struct ferry *f, enum ferry_app_type type, uint32_t id);

/* connect.c: the connection is over; another one is tried until there is one. */
void lib_lost(struct ferry *f, int error);
/* Goes on with a connection that is not up. 0: it is now. */
int lib_reconnect(struct ferry *f);
/* Waits for room to send, or not. */
void lib_want_room(struct ferry *f, bool want);
/* Tries once more in a while what no descriptor says when it can be done, or not. */
void lib_tell_again(struct ferry *f, bool again);

/* resume.c: sends what is untold, as far as it goes. */
void lib_tell(struct ferry *f);
int lib_send_offer(struct ferry_unit *u);
void lib_set_untold(struct ferry_unit *u, bool untold);
/* Before the agent may freeze the unit; and after a freeze that an agent of then has not undone. */
void lib_keep_options(struct ferry_unit *u);
void lib_set_options_back(const struct ferry_unit *u);

/* Makes the sockets and the memfd that a unit will come into, and lends them. */
void lib_lend(struct ferry *f, const struct ferry_app_message *m);
/* Writes what was unsent, hands the unit to arrived(). Where the bundle is not whole, its
 * connections are ended and it is withdrawn. */
void lib_arrive(struct ferry_unit *u, const uint8_t uuid[16]);
void lib_discard(struct ferry_unit *u);

#endif
