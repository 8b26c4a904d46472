/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A move: the protocol of docs/DESIGN.md section 4 as a table of named stages (move.c), each with
 * an origin's function (origin.c) and, where the other side takes part, a destination's
 * (destination.c). An origin's function returns STAGE_DONE (on to the next), STAGE_WAIT (an answer
 * will call move_advance(), or the stage's deadline ends it), STAGE_AGAIN (back to extract) or what
 * move_refuse() returns.
 *
 * Invariant: before the flip every failure ends with the origin open, thawed and serving; after it
 * the origin only repeats that it flipped.
 */
#ifndef MOVE_H
#define MOVE_H

#include "agent/agent.h"
#include "base/util.h"
#include "move/unit.h"
#include "repair/repair.h"

#define GONE_NS (10 * SEC_NS) /* a unit that is nowhere is dropped, and then forgotten */
#define PARK_MAX_NS (5 * SEC_NS) /* the record's deadline: what is parked longer is lost */

enum { STAGE_DONE = 0, STAGE_WAIT = 1, STAGE_AGAIN = 2, STAGE_FAILED = -1 };

enum stage_id {
	STAGE_BORROW,
	STAGE_PREFLIGHT,
	STAGE_QUIESCE,
	STAGE_FENCE,
	STAGE_EXTRACT,
	STAGE_PREPARE,
	STAGE_HOLD,
	STAGE_FLIP,
	STAGE_THAW,
	STAGE_CLOSE,
	STAGE_CONVERGE,
	STAGE_COUNT
};

struct move {
	struct move *next;
	struct agent *agent;
	bool origin;
	unsigned int step; /* in the order of stages */
	uint8_t uuid[16], id[16];
	char kind[32];
	uint32_t peer;           /* node */
	struct channel *channel; /* NULL: broken */
	struct unit *unit;       /* destination: from its LOCAL on */
	struct unit *spare;      /* destination: memory for it, before PREPARED is said */
	uint32_t index;          /* in the dataplane; 0 none yet */
	uint32_t epoch;          /* FENCED's; PREPARED and REMOTE have the next */
	uint32_t newer;          /* epoch that the destination holds for a flow, 0 not above ours */
	unsigned int count;
	int *fds;
	struct repair_image *images;
	uint8_t *state;
	uint32_t state_size;
	sd_event_source *deadline;
	const char *refusal; /* why it failed */
	char detail[256];
	struct dry_run *dry; /* NULL: it is meant (dry_run.h) */

	/* origin */
	bool told;    /* the destination knows of it */
	bool learnt;  /* the other nodes know of the flip */
	bool ended;   /* the new owner has said already that the unit has ended */
	bool quiet;   /* the application was asked to rest */
	bool fenced, flipped;
	bool again;   /* extracted and prepared a second time */
	int command;  /* descriptor of who asked, -1 nobody */
	uint64_t fenced_ns, local_ns;
	uint64_t lost_before, lost_there; /* in the freeze; the destination's */
	uint64_t queued[3]; /* recv, sent, unsent octets */

	/* destination */
	struct app *app;
	uint32_t request, handle;
	int bundle;
	struct space *space; /* of its sockets */
	uint32_t device;     /* that leads there */
	bool prepared, tombstone;
	bool told_flip;      /* while its application was not back */
	unsigned int vips;   /* addresses held */
};

struct stage {
	const char *name;
	uint32_t deadline_ms; /* of a wait */
	int (*origin)(struct move *m);
	enum message request; /* that the destination acts on, 0 none */
	int (*destination)(struct move *m, const Peer__Move *msg, const uint8_t *trailer,
			   uint32_t size);
	const char *late; /* refusal when the deadline passes */
};
extern const struct stage stages[STAGE_COUNT];

/* Starts one; command: a descriptor that is told the end (-1 nobody), and is the move's from here
 * on. 0, or -errno and *refusal, where it could not even start. */
int move_start(struct agent *a, struct unit *u, uint32_t to, int command, const char **refusal);
/* The same, to find out what would become of it: dry_run.h. */
int move_dry_run(struct agent *a, struct unit *u, uint32_t to, int command, const char **refusal);
/* The wait of stage is over: go on, where the move is in it. */
void move_advance(struct move *m, enum stage_id stage);
/* Notes why; returns STAGE_FAILED. detail: printf, may be empty. */
int move_refuse(struct move *m, const char *refusal, const char *detail, ...) _printf_(3, 4);
/* Ends an origin's move that has failed, or the destination's part. */
void move_fail(struct move *m);
struct move *move_new(struct agent *a, bool origin, const uint8_t uuid[16], unsigned int count);
void move_free(struct move *m);
/* Ends the wait after so long (0, or as move_refuse()); IN_DOUBT_MS: how often a destination asks
 * that is PREPARED. */
int move_arm(struct move *m, uint32_t ms);
#define IN_DOUBT_MS 1000
bool move_in(const struct move *m, enum stage_id stage);
/* A message of this move, with nothing but its ids. */
void move_address(const struct move *m, Peer__Move *msg);
int move_send(struct move *m, enum message type);
struct move *move_by_request(struct agent *a, uint32_t request);

/* A destination's that has said PREPARED, or whose agent may have: asks the origin, or, where that
 * has said already that it flipped, goes on. Frees m where it ends with it. */
void move_in_doubt(struct move *m);
/* The node is connected (again): those in doubt ask it. */
void moves_node_up(struct agent *a, uint32_t node);

/* Whether a unit is frozen here: nothing that may wait is begun meanwhile. One past its deadline
 * does not count: in doubt, or flipped to a node that is gone, it may stay so for ever. */
bool moves_frozen(const struct agent *a);

/* What others tell moves; messages: dispatch.c. */
void move_message(struct agent *a, struct channel *c, uint32_t node, enum message type,
		  const Peer__Move *msg, const uint8_t *trailer, uint32_t size);
void move_channel_closed(struct agent *a, struct channel *c);
/* The application's connection has ended. */
void move_app_gone(struct agent *a, struct app *app);
/* limits.c. Whether the trailer of this message is kept: of a PREPARE that was asked for, by the
 * READY of a move with that node, and as long as its sockets' queues. */
bool move_admits(struct agent *a, uint32_t node, enum message type, const Peer__Move *msg,
		 uint32_t size);
/* That node has as many moves to this one going on as it may. */
bool moves_crowded(const struct agent *a, uint32_t node);
unsigned int moves_count(const struct agent *a);
/* The agent is about to end: what can be ended is. */
void moves_stop(struct agent *a);

/* origin.c */
int origin_borrow(struct move *m);
int origin_preflight(struct move *m);
int origin_quiesce(struct move *m);
int origin_fence(struct move *m);
int origin_extract(struct move *m);
int origin_prepare(struct move *m);
int origin_hold(struct move *m);
int origin_flip(struct move *m);
int origin_thaw(struct move *m);
int origin_close(struct move *m);
int origin_converge(struct move *m);
/* Whether this socket may leave, and whether a client's packet fits the tunnel there. */
int origin_check_socket(struct move *m, unsigned int i);
int origin_check_room(struct move *m);
int origin_ask(struct move *m);
/* Serving again, here. */
void origin_abort(struct move *m);
/* From FENCED, or an OPENING that was not ended: thawed, LOCAL. */
void origin_reopen(struct move *m);

/* destination.c */
int destination_preflight(struct move *m, const Peer__Move *msg, const uint8_t *trailer,
			  uint32_t size);
int destination_prepare(struct move *m, const Peer__Move *msg, const uint8_t *trailer,
			uint32_t size);
int destination_thaw(struct move *m, const Peer__Move *msg, const uint8_t *trailer, uint32_t size);
/* "socket 2 (tcp a > b): bind: Address already in use" */
int destination_socket_failed(struct move *m, unsigned int i, int error);
int destination_check_room(struct move *m, uint32_t packet);
int destination_lend(struct move *m);
int destination_check_lent(struct move *m, const int *fds, unsigned int i);
/* The application has lent its sockets. */
void destination_lent(struct move *m, uint32_t handle, int *fds, unsigned int count);
void destination_discard(struct move *m);

/* admit.c: STAGE_DONE or refused. */
/* Whether a flow's local address can be another node's: no node's own, no loopback. */
bool address_moves(const struct agent *a, const uint8_t addr[16]);
int admit_tables(struct move *m);
int admit_room(struct move *m);
int admit_way_back(struct move *m, const Peer__Move *msg);
/* What these are made of: of the unit, of one socket. */
int admit_unit(struct move *m);
int admit_flow(struct move *m, unsigned int i);
int admit_space(struct move *m);
int admit_way(struct move *m, unsigned int i, uint32_t packet, uint32_t *mtu);
/* Entries of earlier connections that admit_tables() let pass. */
void admit_drop_old(struct move *m);

/* bundle.c: writes what the unit brings into the application's memfd. 0 or -errno. */
int bundle_write(const struct move *m);

#endif
