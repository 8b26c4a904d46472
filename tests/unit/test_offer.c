/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an offer takes over (ctl/move/unit.c) where its flow has an entry already: what is over, and
 * what nobody holds; never what lives, and from another network namespace nothing at all, since
 * anybody may make a socket of any name in one of their own. Around it is nothing: no netlink, no
 * pins, no other node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "move/unit.c"

#define UNITS 8
#define HERE 77  /* the agent's namespace */
#define POD 1000 /* one of an application */
#define OTHER 1001

struct app {
	struct space *space;
};

static struct space spaces[] = { { .cookie = HERE, .own = true }, { .cookie = POD },
				 { .cookie = OTHER } };
static struct app apps[] = { { &spaces[0] }, { &spaces[1] }, { &spaces[2] } };
static uint64_t offered_from; /* the namespace of the sockets, by the kernel */
static unsigned int forgotten, told;

struct space *app_space(const struct app *app)
{
	return app->space;
}

struct space *space_again(struct space *s)
{
	return s;
}

void space_release(struct agent *a, struct space *s)
{
	(void)a, (void)s;
}

int space_deliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
	return 0;
}

void space_undeliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
}

uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16]);
uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
	return 0;
}

uid_t app_uid(const struct app *app)
{
	(void)app;
	return 1000;
}

pid_t app_pid(const struct app *app)
{
	(void)app;
	return 1;
}

int access_offer(struct agent *a, const struct unit *u)
{
	(void)a, (void)u;
	return 0;
}

void converge_tell(struct agent *a, const uint8_t uuid[16], const struct ferry_flow *flows,
		   unsigned int count, uint32_t epoch, uint32_t owner, uint32_t but)
{
	(void)a, (void)uuid, (void)flows, (void)count, (void)epoch, (void)owner, (void)but;
	told++;
}

void converge_forget(struct agent *a, const uint8_t uuid[16], uint32_t epoch)
{
	(void)a, (void)uuid, (void)epoch;
	forgotten++;
}

static const struct ferry_flow flow = {
	.saddr = { [10] = 0xff, 0xff, 198, 51, 100, 7 },
	.daddr = { [10] = 0xff, 0xff, 203, 0, 113, 10 },
	.sport = 0x1234,
	.dport = 0x5678,
	.proto = IPPROTO_TCP,
};

int repair_check(int fd, struct repair_image *image, const char **refusal)
{
	(void)fd, (void)refusal;
	image->flow = flow;
	return 0;
}

/* Of every socket here. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	uint64_t v = name == SO_NETNS_COOKIE ? offered_from : (uint64_t)fd;

	(void)level;
	assert_int_equal(*size, sizeof(v));
	memcpy(value, &v, sizeof(v));
	return 0;
}

enum outcome { REFUSED, TAKEN, ADOPTED }; /* its place taken, or the same unit goes on */
enum { IN_USE, GIVEN_UP, IN_TABLES }; /* the entry's unit; the last: not on the agent's list */

#define OLD_FD 3
#define NEW_FD 4
static const struct {
	const char *name;
	enum ferry_state state;
	int unit, space, by, fd; /* spaces[]; the descriptor stands for the socket */
	enum outcome outcome;
} rows[] = {
	{ "in use, the same socket", FERRY_LOCAL, IN_USE, 0, 0, OLD_FD, REFUSED },
	{ "in use, but by a socket that is gone", FERRY_LOCAL, IN_USE, 0, 0, NEW_FD, TAKEN },
	{ "given up", FERRY_LOCAL, GIVEN_UP, 0, 0, NEW_FD, ADOPTED },
	{ "in a move", FERRY_FENCED, GIVEN_UP, 0, 0, NEW_FD, REFUSED },
	{ "moved away", FERRY_REMOTE, IN_TABLES, 0, 0, NEW_FD, TAKEN },
	{ "nowhere", FERRY_GONE, IN_TABLES, 0, 0, NEW_FD, TAKEN },
	{ "in a pod: another socket there", FERRY_LOCAL, IN_USE, 1, 1, NEW_FD, TAKEN },
	{ "in a pod: given up there", FERRY_LOCAL, GIVEN_UP, 1, 1, NEW_FD, ADOPTED },
	{ "in a pod: moved away from there", FERRY_REMOTE, IN_TABLES, 1, 1, NEW_FD, TAKEN },
	{ "in a pod, from another: in use", FERRY_LOCAL, IN_USE, 1, 2, NEW_FD, REFUSED },
	{ "in a pod, from another: given up", FERRY_LOCAL, GIVEN_UP, 1, 2, NEW_FD, REFUSED },
	{ "in a pod, from another: moved away", FERRY_REMOTE, IN_TABLES, 1, 2, NEW_FD, REFUSED },
	{ "here, from a pod: in use", FERRY_LOCAL, IN_USE, 0, 1, NEW_FD, REFUSED },
	{ "here, from a pod: given up", FERRY_LOCAL, GIVEN_UP, 0, 1, NEW_FD, REFUSED },
	{ "here, from a pod: moved away", FERRY_REMOTE, IN_TABLES, 0, 1, NEW_FD, REFUSED },
	{ "in a pod, from here: in use", FERRY_LOCAL, IN_USE, 1, 0, NEW_FD, REFUSED },
	{ "in a pod, from here: moved away", FERRY_REMOTE, IN_TABLES, 1, 0, NEW_FD, TAKEN },
};

static int no_grace(void *arg)
{
	(void)arg;
	return 0;
}

static void open_world(struct agent *a, struct config_node *self)
{
	struct table *t = &a->dp.flows;

	a->config.self = self;
	a->dp.control.units = UNITS;
	a->dp.words = calloc(UNITS, sizeof(*a->dp.words));
	a->dp.records = calloc(UNITS, sizeof(*a->dp.records));
	a->dp.unit_freed = calloc(UNITS, 1);
	t->buckets4 = t->buckets6 = UNITS;
	t->bucket4 = calloc(UNITS, sizeof(*t->bucket4));
	t->bucket6 = calloc(UNITS, sizeof(*t->bucket6));
	t->stash = -1;
	t->grace = no_grace;
	assert_int_equal(table_init(t), 0);
}

static void close_world(struct agent *a)
{
	while (a->units)
		unit_forget(a, a->units);
	free(a->dp.words);
	free(a->dp.records);
	free(a->dp.unit_freed);
	free(a->dp.flows.bucket4);
	free(a->dp.flows.bucket6);
	table_close(&a->dp.flows);
}

static int offer(struct agent *a, int space, int fd, struct unit **u, const char **refusal)
{
	static const struct ferry_app_socket socket;

	offered_from = spaces[space].cookie;
	return unit_offer(a, &apps[space], 1, &fd, &socket, 1, u, refusal);
}

static void one(unsigned int i)
{
	struct config_node self = { .number = 1 };
	struct unit *old, *u = NULL;
	struct agent a = {};
	const char *refusal = "";
	uint8_t uuid[16];
	uint64_t word;
	int r;

	open_world(&a, &self);
	assert_int_equal(offer(&a, rows[i].space, OLD_FD, &old, &refusal), 0);
	memcpy(uuid, old->uuid, 16);
	word = FERRY_WORD(5, rows[i].state, 0);
	assert_true(unit_swap(&a.dp, old->index, unit_word(&a.dp, old->index), word));
	if (rows[i].unit == GIVEN_UP)
		unit_give_up(old);
	else if (rows[i].unit == IN_TABLES)
		unit_forget(&a, old);
	forgotten = told = 0;
	r = offer(&a, rows[i].by, rows[i].fd, &u, &refusal);
	printf("%s: %s\n", rows[i].name, r ? refusal : "taken");
	assert_int_equal(r != 0, rows[i].outcome == REFUSED);
	if (r) {
		assert_string_equal(refusal, "flow-owned");
		assert_true(unit_word(&a.dp, table_find(&a.dp.flows, &flow)) == word);
	} else {
		assert_int_equal(memcmp(uuid, u->uuid, 16) == 0, rows[i].outcome == ADOPTED);
		assert_int_equal(table_find(&a.dp.flows, &flow), u->index);
		assert_true(unit_word(&a.dp, u->index) == FERRY_WORD(6, FERRY_LOCAL, 0));
	}
	/* the others hear of what goes on, and of the end of what was served here */
	assert_int_equal(told, rows[i].outcome == ADOPTED);
	assert_int_equal(forgotten, rows[i].outcome == TAKEN && rows[i].unit == IN_USE);
	close_world(&a);
}

static void what_an_offer_takes_over(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		one(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_an_offer_takes_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
