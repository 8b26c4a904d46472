/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the probes' two applications of libferry share: listeners, the agent, the life of a unit,
 * and one JSON line an event. What a unit consists of is the application's (struct app_ops).
 *
 *   app_init -> app_option for each option -> app_run
 *   accepted() ... app_unit_add() ... app_offer() ... app_unit_remove()
 *   quiesce:    stop(), save()          abort: go()         commit: destroy()
 *   arrival:    load(), go()
 *
 * Without the agent all goes on; when it comes back, offer() is called for every unit, of which
 * those that it has refused are offered again.
 *
 * Invariant: while unit.frozen is set the application makes no call on the unit's sockets.
 */
#ifndef PROBE_APP_H
#define PROBE_APP_H

#include <ferry.h>
#include <getopt.h>
#include <stdint.h>

#include "blob.h"
#include "net.h"

#define APP_LISTEN_MAX 8

struct app;

struct unit {
	struct unit *next, *prev;
	struct ferry_unit *ferry; /* NULL: not offered, or refused */
	uint64_t id;
	int frozen;
	int dead; /* freed after this round of events */
};

struct app_ops {
	void (*accepted)(struct app *a, int fd, const union address *from);
	/* (Again) app_offer() it, if all its sockets are there. */
	void (*offer)(struct app *a, struct unit *u);
	void (*stop)(struct app *a, struct unit *u);
	void (*go)(struct app *a, struct unit *u);
	void (*save)(struct app *a, const struct unit *u, struct blob *b);
	/* A unit of save()'s octets and fu's sockets; NULL: they make no sense. */
	struct unit *(*load)(struct app *a, struct ferry_unit *fu, struct blob_reader *r);
	/* Closes its descriptors and frees it. */
	void (*destroy)(struct app *a, struct unit *u);
	/* Before each wait; gives the time of the next call. May be NULL. */
	uint64_t (*tick)(struct app *a, uint64_t now);
};

struct app_listener {
	struct source source;
	struct app *app;
	const char *address;
};

struct app {
	const struct app_ops *ops;
	/* options */
	const char *agent, *kind;
	int no_agent;
	uint16_t port;
	uint64_t pacing, sndbuf, state_size;
	/* run time */
	int loop;
	struct app_listener listeners[APP_LISTEN_MAX];
	unsigned int n_listeners;
	struct ferry *ferry;
	struct source agent_source, signals;
	struct unit units;    /* ring: sentinel */
	int quit;
	int failed; /* serving on would hide it: exit status 1 */
};

enum {
	APP_LISTEN = 256,
	APP_PORT,
	APP_AGENT,
	APP_NO_AGENT,
	APP_KIND,
	APP_PACING,
	APP_SNDBUF,
	APP_STATE_SIZE,
	APP_OPTION_END,
};

/* For the table of getopt_long. */
#define APP_OPTIONS                                                                                \
	{ "listen", required_argument, NULL, APP_LISTEN },                                         \
	{ "port", required_argument, NULL, APP_PORT },                                             \
	{ "agent", required_argument, NULL, APP_AGENT },                                           \
	{ "no-agent", no_argument, NULL, APP_NO_AGENT },                                           \
	{ "kind", required_argument, NULL, APP_KIND },                                             \
	{ "pacing", required_argument, NULL, APP_PACING },                                         \
	{ "sndbuf", required_argument, NULL, APP_SNDBUF },                                         \
	{ "state-size", required_argument, NULL, APP_STATE_SIZE }

#define APP_USAGE                                                                                  \
	"  --listen ADDR      IPv4 or IPv6 address; repeatable\n"                                  \
	"  --port P\n"                                                                             \
	"  --agent PATH       the agent's socket\n"                                                \
	"  --no-agent         serve without libferry\n"                                            \
	"  --kind KIND        what to register as\n"                                               \
	"  --pacing BYTES     SO_MAX_PACING_RATE, bytes/s\n"                                       \
	"  --sndbuf BYTES     SO_SNDBUF of accepted sockets\n"                                     \
	"  --state-size BYTES pad the opaque state to so much\n"

void app_init(struct app *a, const struct app_ops *ops, const char *kind);
/* 0, or -EINVAL: not such an option, or a bad value. */
int app_option(struct app *a, int option, const char *value);
/* Listens, registers, serves until SIGTERM. The exit status. */
int app_run(struct app *a);

void app_unit_add(struct app *a, struct unit *u);
void app_unit_remove(struct unit *u);
void app_offer(struct app *a, struct unit *u, const int *fds, const char *const *roles,
	       unsigned int n);
/* Before the first of an offered unit's sockets is closed. */
void app_withdraw(struct unit *u);
/* Socket options of --pacing; they are this node's, and set again on arrival. */
void app_pace(const struct app *a, int fd);

/* {"event":NAME,FIELDS...}; fields: printf of `"key":value` pairs, may be "". */
void app_event(const char *name, const char *fields, ...) __attribute__((format(printf, 2, 3)));
/* An id that no other unit has: for applications whose clients bring none. Below 2^52. */
uint64_t random_id(void);

#endif
