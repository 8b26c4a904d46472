/* SPDX-License-Identifier: BSD-2-Clause */
/* A ledger as JSON and as text, for ferry watch and ferry watch show. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "cli/cli.h"
#include "listener/ledger.h"

struct watch {
	struct cli *cli;
	uint64_t netns; /* ours, of which nothing is said */
	json_t *rows;   /* watch_row() adds to it; NULL: it prints */
};

struct watch_arguments {
	const char *name;
	bool clients;
	uint64_t seconds;
};

/* EXIT_OK, or says what is wrong. */
int watch_parse(struct cli *c, int argc, char **argv, struct watch_arguments *a);
/* The cookie of this process's network namespace. */
uint64_t watch_netns(void);
json_t *watch_counts(const __u64 n[WITNESS_COUNT]);
void watch_put_address(json_t *o, const struct witness_key *key);
json_t *watch_close(const struct witness_close *r);
/* A ledger_visit of a struct watch. */
void watch_row(const struct witness_close *row, void *data);
/* What keeps the sum from being the whole. */
void watch_put_doubts(json_t *o, const struct witness_state *s);
void watch_say_doubts(const struct witness_state *s);

#endif
