/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of libferry share. Units are on one list; a lent set is a unit not gone yet. */
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

struct ferry_unit {
	struct ferry_unit *next;
	struct ferry *ferry;
	enum unit_state state;
	bool busy;      /* in a callback: freed when it returns */
	bool withdrawn; /* in that callback */
	uint32_t handle, request;
	uint8_t uuid[16];
	unsigned int count;
	int *fds;
	char (*roles)[16];
	void *data;
	int bundle;         /* memfd, -1 none */
	const uint8_t *map; /* the bundle, while arrived() runs */
	size_t map_size;
	uint64_t *next_datagram; /* per socket: offset in map */
	uint32_t *datagrams;     /* per socket: left */
};

struct ferry {
	int fd;
	uint32_t next_handle;
	const struct ferry_ops *ops;
	void *arg;
	struct ferry_unit *units;
	unsigned int untold; /* UNIT_WITHDRAWN */
};

struct ferry_unit *lib_unit_new(struct ferry *f, unsigned int count);
/* Takes it off the list and frees it; descriptors are left alone. */
void lib_unit_free(struct ferry_unit *u);

/* One message, with descriptors beside it. 0 or -errno. */
int lib_send(struct ferry *f, const struct ferry_app_message *m, size_t size, const int *fds,
	     unsigned int count);
int lib_say(struct ferry *f, enum ferry_app_type type, uint32_t id);

/* Makes the sockets and the memfd that a unit will come into, and lends them. */
void lib_lend(struct ferry *f, const struct ferry_app_message *m);
/* Writes what was unsent, hands the unit to arrived(). Where the bundle is not whole, its
 * connections are ended and it is withdrawn. */
void lib_arrive(struct ferry_unit *u, const uint8_t uuid[16]);
void lib_discard(struct ferry_unit *u);

#endif
