/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs of `ferry` share. A verb builds one JSON object; -j prints it, else it is shown
 * as text from the same object. stdout is data, stderr is talk.
 */
#ifndef CLI_H
#define CLI_H

#include <jansson.h>
#include <stdbool.h>
#include "base/util.h"
#include "dataplane/dataplane.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_FOUND = 3, EXIT_DEGRADED = 4 };

struct cli {
	const char *node;   /* --node, FERRY_NODE, or the only one pinned here */
	const char *socket; /* of the agent */
	bool json;
	bool quiet; /* an error is an answer, not talk */
	struct dataplane view; /* of the pins; opened by cli_view() */
	bool pins;             /* what is printed is from there, with the agent or without */
};

struct verb {
	const char *object, *name; /* name NULL: the object is the verb */
	int (*run)(struct cli *c, int argc, char **argv); /* argv[0] is the first argument */
	const char *arguments, *help;
};

/* EXIT_OK, or says why not. */
int cli_view(struct cli *c);
/* Asks the agent; *answer is its object. EXIT_OK or says why not. */
int cli_ask(struct cli *c, json_t *request, int timeout_ms, json_t **answer);
/* A connection to a UNIX socket, or -errno. flags: SOCK_NONBLOCK. */
int cli_dial(const char *path, int flags);
/* One request and its answer. EXIT_OK, CLI_ENDED or says why not. Takes request. */
#define CLI_ENDED -1 /* the other end has closed without an answer, as one does that ends */
int cli_exchange(struct cli *c, int fd, json_t *request, int timeout_ms, json_t **answer);
/* Asks ferry-guard, which is started where there is none and `start` says so. EXIT_OK, or says why
 * not: also what it has refused. */
int cli_ask_guard(struct cli *c, json_t *request, bool start, json_t **answer);
int cli_not_allowed(struct cli *c);
/* A port as --port gives it. EXIT_OK, or says what is wrong. */
int cli_port(struct cli *c, const char *text, json_int_t *port);
/* When that was by the clock on the wall. */
#define CLI_WHEN 32
const char *cli_when(uint64_t boottime, char text[CLI_WHEN]);
int cli_error(struct cli *c, int code, const char *id, const char *format, ...) _printf_(4, 5);

/* Prints the object and drops it; what is read from the pins says whether there is an agent: -j by
 * the key agent, text on stderr where there is none. Text: rows of the array `key` under these
 * columns, then the object's other plain members as "name: value". */
struct column {
	const char *key, *title;
};
int cli_print(struct cli *c, json_t *object, const char *key, const struct column *columns,
	      unsigned int n);

json_t *cli_unit(struct cli *c, uint32_t unit, bool whole);
/* The entry of a tuple as flow_text() prints it. EXIT_OK or says why not. */
int cli_find_flow(struct cli *c, const char *tuple, struct ferry_flow *flow, uint32_t *unit);
json_t *cli_flow(struct cli *c, const struct ferry_flow *flow, uint32_t unit);

int cmd_status(struct cli *c, int argc, char **argv);
int cmd_node_list(struct cli *c, int argc, char **argv);
int cmd_flow_list(struct cli *c, int argc, char **argv);
int cmd_flow_show(struct cli *c, int argc, char **argv);
int cmd_unit_list(struct cli *c, int argc, char **argv);
int cmd_unit_show(struct cli *c, int argc, char **argv);
int cmd_move(struct cli *c, int argc, char **argv);
int cmd_guard(struct cli *c, int argc, char **argv);
int cmd_guard_list(struct cli *c, int argc, char **argv);
int cmd_guard_off(struct cli *c, int argc, char **argv);
int cmd_listener_list(struct cli *c, int argc, char **argv);
int cmd_listener_generation(struct cli *c, int argc, char **argv);
int cmd_listener_policy(struct cli *c, int argc, char **argv);
int cmd_watch(struct cli *c, int argc, char **argv);
int cmd_watch_show(struct cli *c, int argc, char **argv);
int cmd_counters(struct cli *c, int argc, char **argv);
int cmd_pki_init(struct cli *c, int argc, char **argv);
int cmd_pki_issue(struct cli *c, int argc, char **argv);
int cmd_pki_show(struct cli *c, int argc, char **argv);

#endif
