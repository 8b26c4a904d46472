/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an offer takes over (ctl/move/unit.c) where its flow has an entry already: what is over, and
 * what nobody holds; never what lives, and from another network namespace nothing at all, since
 * anybody may make a socket of any name in one of their own.
 */
#include "tables_world.h"

#define HERE 77  /* the agent's namespace */
#define POD 1000 /* one of an application */
#define OTHER 1001

static struct space spaces[] = { { .cookie = HERE, .own = true }, { .cookie = POD },
				 { .cookie = OTHER } };
static struct app apps[] = { { &spaces[0] }, { &spaces[1] }, { &spaces[2] } };
static unsigned int forgotten, told;

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

enum outcome { REFUSED, TAKEN, ADOPTED }; /* its place taken, or the same unit goes on */
enum { IN_USE, GIVEN_UP, IN_TABLES }; /* the entry's unit; the last: not on the agent's list */

#define NONE FERRY_ROLE_NONE
#define CAME FERRY_ROLE_DESTINATION
#define OLD_FD 3
#define NEW_FD 4
static const struct {
	const char *name;
	enum ferry_state state;
	enum ferry_role role;
	int unit, space, by, fd; /* spaces[]; the descriptor stands for the socket */
	enum outcome outcome;
} rows[] = {
	{ "in use, the same socket", FERRY_LOCAL, NONE, IN_USE, 0, 0, OLD_FD, REFUSED },
	{ "in use, but by a socket that is gone", FERRY_LOCAL, NONE, IN_USE, 0, 0, NEW_FD, TAKEN },
	{ "given up", FERRY_LOCAL, NONE, GIVEN_UP, 0, 0, NEW_FD, ADOPTED },
	{ "given up, and it came", FERRY_LOCAL, CAME, GIVEN_UP, 0, 0, NEW_FD, ADOPTED },
	{ "in a move", FERRY_FENCED, NONE, GIVEN_UP, 0, 0, NEW_FD, REFUSED },
	{ "moved away", FERRY_REMOTE, NONE, IN_TABLES, 0, 0, NEW_FD, TAKEN },
	{ "nowhere", FERRY_GONE, NONE, IN_TABLES, 0, 0, NEW_FD, TAKEN },
	{ "in a pod: another socket there", FERRY_LOCAL, NONE, IN_USE, 1, 1, NEW_FD, TAKEN },
	{ "in a pod: given up there", FERRY_LOCAL, NONE, GIVEN_UP, 1, 1, NEW_FD, ADOPTED },
	{ "in a pod: moved away from there", FERRY_REMOTE, NONE, IN_TABLES, 1, 1, NEW_FD, TAKEN },
	{ "in a pod, from another: in use", FERRY_LOCAL, NONE, IN_USE, 1, 2, NEW_FD, REFUSED },
	{ "in a pod, from another: given up", FERRY_LOCAL, NONE, GIVEN_UP, 1, 2, NEW_FD, REFUSED },
	{ "in a pod, from another: moved away", FERRY_REMOTE, NONE, IN_TABLES, 1, 2, NEW_FD, REFUSED },
	{ "here, from a pod: in use", FERRY_LOCAL, NONE, IN_USE, 0, 1, NEW_FD, REFUSED },
	{ "here, from a pod: given up", FERRY_LOCAL, NONE, GIVEN_UP, 0, 1, NEW_FD, REFUSED },
	{ "here, from a pod: moved away", FERRY_REMOTE, NONE, IN_TABLES, 0, 1, NEW_FD, REFUSED },
	{ "in a pod, from here: in use", FERRY_LOCAL, NONE, IN_USE, 1, 0, NEW_FD, REFUSED },
	{ "in a pod, from here: moved away", FERRY_REMOTE, NONE, IN_TABLES, 1, 0, NEW_FD, TAKEN },
};

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
	unit_record(&a.dp, old->index)->role = (uint8_t)rows[i].role;
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
		assert_true(unit_word(&a.dp, table_find(&a.dp.flows, &any_flow)) == word);
	} else {
		assert_int_equal(memcmp(uuid, u->uuid, 16) == 0, rows[i].outcome == ADOPTED);
		assert_int_equal(table_find(&a.dp.flows, &any_flow), u->index);
		assert_true(unit_word(&a.dp, u->index) == FERRY_WORD(6, FERRY_LOCAL, 0));
	}
	/* the others hear of what goes on, where they can have heard of it before, and of the end of
	 * what was served here */
	assert_int_equal(told, rows[i].outcome == ADOPTED && rows[i].role == CAME);
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
