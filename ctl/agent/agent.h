/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the agent's files share. One loop, one thread; nothing in it waits but for the kernel.
 * Who knows whom: app and command know units and moves; moves know units, nodes, the dataplane
 * and the sockets in repair; units know the dataplane; nodes know channels.
 */
#ifndef AGENT_H
#define AGENT_H

#include <jansson.h>
#include <systemd/sd-event.h>
#include "agent/config.h"
#include "agent/rights.h"
#include "dataplane/dataplane.h"
#include "move/estimate.h"
#include "net/rtnl.h"
#include "peer/channel.h"

#define UNIT_BUCKETS 4096

struct agent {
	struct config config;
	sd_event *event;
	struct dataplane dp;
	struct rtnl rtnl;
	uint8_t boot[16];
	struct rights_user user; /* that it becomes before its loop */
	struct app *apps;
	struct unit *units;
	struct unit *by_index[UNIT_BUCKETS]; /* unit_by_index() */
	struct move *moves;
	struct node *nodes; /* n_nodes of them, in the order of the configuration */
	struct channels channels;
	struct peers *peers;
	struct vip *vips;
	struct space *spaces;
	uint32_t next_request;
	struct estimate freezes; /* of moves away */
	uint64_t netns; /* cookie of the network namespace it works in */
};

/* accept.c: accept() has failed; where descriptors are short, it is not tried again at once. */
void accept_later(sd_event_source *listener, int error);
/* Whether it is a socket of this type that accepts. */
bool is_listener(int fd, int type);

/* app_io.c: applications and commands on the UNIX socket. */
int app_listen(struct agent *a, const char *path);

/* command.c: one JSON request, answered on fd (which it owns from here on). */
void command_run(struct agent *a, int fd, const char *request, size_t size);
/* A move that a command asked for has ended; failure: NULL or a refusal's id. Closes fd. */
struct move;
void command_moved(int fd, const struct move *m, const char *failure, const char *detail);
/* command_dry.c: a dry run has ended. Closes fd. */
void command_judged(int fd, const struct move *m);
/* Sends one object, and closes fd. */
void command_answer(int fd, json_t *object);

/* peers.c: who is let in. Reads this node's certificate, where the fleet has another node; says in
 * the log what is wrong with it. */
int peers_open(struct agent *a);
/* The same for another configuration of this node, which is not taken. 0, or a sentence. */
int peers_check(struct agent *a, const struct config *c, char *error, size_t size);
int peers_listen(struct agent *a);
/* For a connection that is made now: the certificate as it is now. */
SSL_CTX *peers_context(struct agent *a);
/* A channel with that node ends for a reason: counted and said. */
void peers_refused(struct agent *a, const struct config_node *n, struct channel *c, bool dialed);
uint64_t peers_count(const struct agent *a, enum peer_reason reason);
int peers_socket(const struct config_node *n);
int peers_bind(int fd, const struct config_node *n, uint16_t port);

/* nodes.c: channels to the other nodes, and the next hops towards them. */
int nodes_start(struct agent *a);
/* The channel for requests to that node, NULL where it is not up. */
struct channel *nodes_channel(struct agent *a, uint32_t number);
/* How many other nodes' agents are connected; one that is not: its name in *missing, else NULL. */
unsigned int nodes_connected(struct agent *a, const char **missing);
/* The node's boot id where its HELLO has been seen, else NULL. */
const uint8_t *nodes_boot(struct agent *a, uint32_t number);
/* To every node that is connected, but those two. */
void nodes_tell(struct agent *a, enum message type, const Peer__Move *m, uint32_t but,
		uint32_t and_but);

/* move/ending.c: looks for units whose connections have ended. */
int ending_start(struct agent *a);

/* nexthop.c */
int nexthops_start(struct agent *a);

/* The units that a node says it knows (converge.c): collected, then asked, sorted, once all are in
 * and nodes_known_whole() says so. */
void nodes_know(struct agent *a, uint32_t node, const ProtobufCBinaryData *uuids, size_t count);
bool nodes_known_whole(struct agent *a, uint32_t node);
bool nodes_knows(struct agent *a, uint32_t node, const uint8_t uuid[16]);
/* When the node last connected (boot time, ns): its list is not older than that. */
uint64_t nodes_greeted_ns(struct agent *a, uint32_t node);
void nodes_forget_known(struct agent *a, uint32_t node);

/* vip.c: addresses made deliverable here, for as long as somebody needs them. */
int vip_acquire(struct agent *a, const uint8_t addr[16]);
/* Whether an application or a node may have the address made deliverable here: a service's, or one
 * that is there already. */
bool vip_allowed(struct agent *a, const uint8_t addr[16]);
void vip_release(struct agent *a, const uint8_t addr[16]);
/* Those that an earlier agent made deliverable, and nobody needs (any more). */
void vips_sweep(struct agent *a);

#endif
