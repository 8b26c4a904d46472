/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ledger of what closed listeners lost: loads the witness (bpf/witness.bpf.c) and reads what it
 * has counted. A ledger has a name, so that several can be kept on one machine.
 *
 *   1 ledger_open()   loads; pins the counts under LEDGER_ROOT/NAME where it may, and locks that
 *   2 ledger_start()  attaches: from here on it counts
 *   3 ledger_poll()   again and again, at least every second: what happened, as it happens
 *   4 ledger_close()  detaches; the counts stay pinned, with the time of their end
 *
 * The programs are attached for as long as a process has their links, not pinned: a process that is
 * killed leaves nothing that runs, unless it has given its descriptors to another, which goes on by
 * ledger_adopt(). What it has counted until then can still be read, and that nobody counts any
 * more, the lock being free: no reader takes "not counted" for "none".
 */
#ifndef LEDGER_H
#define LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <ferry/witness.h>

#define LEDGER_ROOT "/sys/fs/bpf/ferry-witness"
#define LEDGER_ERROR 320

struct ring_buffer;
struct witness_bpf;

/* A ledger's descriptors: maps, and the programs' links. */
#define LEDGER_FDS(X)                                                                              \
	X(ROWS, "rows")                                                                            \
	X(TOTALS, "totals")                                                                        \
	X(SOCKETS, "sockets")                                                                      \
	X(RING, "ring")                                                                            \
	X(DESTROY, "destroy")                                                                      \
	X(REPORT, "report")                                                                        \
	X(STATE, "state")
enum ledger_fd {
#define X(id, name) LEDGER_##id,
	LEDGER_FDS(X)
#undef X
	LEDGER_FD_COUNT
};
extern const char *const ledger_fd_names[LEDGER_FD_COUNT];

struct ledger {
	/* Cause and remedy of the last failure; of 1, why it is not pinned. */
	char error[LEDGER_ERROR];
	bool pinned;
	struct witness_state *state;
	/* What is said of each record. Set before ledger_poll(). */
	void (*closed)(const struct witness_close *c, void *data);
	void (*client)(const struct witness_client *w, void *data);
	void *data;
	int fd[LEDGER_FD_COUNT]; /* the links are -1 before ledger_start() */
	/* inside */
	struct witness_bpf *programs; /* NULL: adopted */
	struct ring_buffer *ring;
	int lock;
	char dir[128];
};

/* name: as a node's, or NULL: nothing is pinned. clients: each that is reset is told of. 0 or
 * -errno: -EBUSY, another process keeps the ledger of this name. */
int ledger_open(struct ledger *l, const char *name, bool clients);
/* 0 or -errno. */
int ledger_start(struct ledger *l);
/* Goes on with what another process of this version has started: l->fd are its descriptors. 0 or
 * -errno, and then they are the caller's. */
int ledger_adopt(struct ledger *l);
/* Ready to be read where there is something for ledger_poll(). */
int ledger_poll_fd(const struct ledger *l);
/* Waits for so long for a first record; how many there were, or -errno (-EINTR). */
int ledger_poll(struct ledger *l, int ms);
/* How often the kernel did not run a program because an interrupt had come into that very program:
 * ends of other sockets, since what a close does comes in the task or with softirqs off. */
uint64_t ledger_missed(const struct ledger *l);
/* visit() for each address. 0 or -errno. */
typedef void (*ledger_visit)(const struct witness_close *row, void *data);
int ledger_rows(const struct ledger *l, ledger_visit visit, void *data);
/* All closes at one address. 0 or -ENOENT. */
int ledger_row(const struct ledger *l, const struct witness_key *key, struct witness_close *row);
/* The last closes of one socket. 0 or -ENOENT. */
int ledger_socket(const struct ledger *l, uint64_t cookie, struct witness_close *row);
void ledger_close(struct ledger *l);

/* What another process counts, or has counted. */
struct ledger_view {
	struct witness_state state; /* a copy */
	bool watching; /* else not since: */
	uint64_t since; /* CLOCK_BOOTTIME, within a second where it was killed */
	int rows; /* descriptor of the map */
};
/* 0 or -errno: -ENOENT, nobody has kept this ledger since the machine started. */
int ledger_view(const char *name, struct ledger_view *v);
int ledger_view_rows(const struct ledger_view *v, ledger_visit visit, void *data);
void ledger_view_close(struct ledger_view *v);

#endif
