/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Units as the agent knows them: those of an application on this node, or in a move from it, and
 * those that nobody holds (any more): given up, or of an earlier agent. What only says where a flow
 * lives now (tombstones, ingress entries) is in the tables alone.
 * Invariant: a unit's record is written, and its word too, before the first of its flows.
 */
#ifndef MOVE_UNIT_H
#define MOVE_UNIT_H

#include <ferry/app.h>
#include "agent/agent.h"

struct app;
struct move;
struct space;

struct unit {
	struct unit *next, *next_in_bucket;
	struct app *app; /* NULL: nobody holds it; it ends with its connections (ending.c) */
	uid_t uid;       /* the application's, also of one that gave it up */
	uint32_t handle; /* the application's name for it */
	uint32_t index;  /* in the dataplane: unit_place() */
	uint8_t uuid[16];
	unsigned int count, taken; /* taken: flows found in the tables (adopt.c) */
	struct ferry_flow *flows;
	char (*roles)[16];
	uint64_t *cookies; /* SO_COOKIE: a borrowed descriptor is the one that was offered */
	struct space *space; /* the network namespace of its sockets */
	uint64_t since_ns; /* without an application: since then */
	bool delivered;    /* holds its addresses */
	bool moved;        /* the others know of it, or may: they are told where it is */
	struct move *move;
};

/* Takes an application's offer. 0 and *ret, or -errno and a refusal's id. */
int unit_offer(struct agent *a, struct app *app, uint32_t handle, const int *fds,
	       const struct ferry_app_socket *sockets, unsigned int count, struct unit **ret,
	       const char **refusal);
/* Memory for one, and its entry in the agent's list, which cannot fail. */
struct unit *unit_make(unsigned int count);
void unit_unmake(struct agent *a, struct unit *u);
void unit_enter(struct agent *a, struct unit *u, struct app *app, uint32_t handle);
/* A unit that came: its flows, word and addresses are in place already. NULL: no memory. */
struct unit *unit_new(struct agent *a, struct app *app, uint32_t handle, unsigned int count);
/* Frees the agent's view; flows, word and addresses stay (a tombstone). */
void unit_forget(struct agent *a, struct unit *u);
/* The application gives it up, or is gone: it is kept until its connections have ended. */
void unit_give_up(struct unit *u);
/* Its connections have ended: flows, word and addresses go, the other nodes are told. */
void unit_withdraw(struct agent *a, struct unit *u);
/* Its index is that from here on. */
void unit_place(struct agent *a, struct unit *u, uint32_t index);
struct unit *unit_find(struct agent *a, const uint8_t uuid[16]);

/* Deletes every flow that names the unit, and the unit. */
void unit_drop(struct agent *a, uint32_t index);
uint64_t socket_cookie(int fd);

/* adopt.c: what an earlier agent left (resume.h). 0 or -errno. */
int units_adopt(struct agent *a);
/* All of the unit's addresses, deliverable or not any more. */
int unit_deliver(struct agent *a, struct unit *u);
/* Where it holds them. */
void unit_undeliver(struct agent *a, struct unit *u);
uint64_t socket_netns(int fd);
/* Ports can be shared by sockets of one user (SO_REUSEPORT): whether no two of these are the
 * same. */
bool flows_differ(const struct ferry_flow *flows, unsigned int count);
/* The unit that is served from here, or still in a move from here, with this index, or NULL. */
struct unit *unit_by_index(struct agent *a, uint32_t index);

/* converge.c: who is told where a unit lives. */
void converge_tell(struct agent *a, const uint8_t uuid[16], const struct ferry_flow *flows,
		   unsigned int count, uint32_t epoch, uint32_t owner, uint32_t but);
void converge_forget(struct agent *a, const uint8_t uuid[16], uint32_t epoch);
/* A node has (re)connected: it learns what lives here and came from elsewhere. */
void converge_node(struct agent *a, uint32_t node);
void converge_learn(struct agent *a, const Peer__Move *m);
void converge_on_forget(struct agent *a, const Peer__Move *m);
void converge_on_knows(struct agent *a, uint32_t node, const Peer__Move *m);

#endif
