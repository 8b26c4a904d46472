/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an agent makes of tables that an earlier one left (units_adopt()), and of what applications
 * then say (RESUME): the table in ctl/move/resume.h, with sockets as they should be and as they
 * should not. The invariant: whatever an application says, what it does not hold is as before,
 * another application's unit, too; and no descriptor, address or namespace is kept too long.
 */
#include <linux/netlink.h>
#include "resume_world.h"

#define HANDLE 7
enum { NOTHING = 0, REFUSED = 100 /* OFFERED with a refusal */ };

static const struct row {
	const char *name;
	uint32_t state;
	uint8_t role;
	bool frozen;
	uint16_t ours, quiesced, lent; /* answers */
	uint32_t after[3];             /* states, by what was said */
} rows[] = {
	{ "unknown",
	  FERRY_FREE,
	  0,
	  false,
	  FERRY_APP_OFFERED,
	  FERRY_APP_ABORTED,
	  FERRY_APP_DISCARD,
	  { FERRY_LOCAL, FERRY_LOCAL, FERRY_FREE } },
	{ "unknown, frozen",
	  FERRY_FREE,
	  0,
	  true,
	  FERRY_APP_OFFERED,
	  FERRY_APP_COMMITTED,
	  FERRY_APP_DISCARD,
	  { FERRY_LOCAL, FERRY_FREE, FERRY_FREE } },
	{ "LOCAL",
	  FERRY_LOCAL,
	  0,
	  false,
	  FERRY_APP_OFFERED,
	  FERRY_APP_ABORTED,
	  FERRY_APP_GO,
	  { FERRY_LOCAL, FERRY_LOCAL, FERRY_LOCAL } },
	{ "FENCED",
	  FERRY_FENCED,
	  FERRY_ROLE_ORIGIN,
	  false,
	  REFUSED,
	  FERRY_APP_ABORTED,
	  FERRY_APP_DISCARD,
	  { FERRY_FENCED, FERRY_LOCAL, FERRY_FENCED } },
	{ "FENCED, frozen",
	  FERRY_FENCED,
	  FERRY_ROLE_ORIGIN,
	  true,
	  REFUSED,
	  FERRY_APP_ABORTED,
	  FERRY_APP_DISCARD,
	  { FERRY_FENCED, FERRY_LOCAL, FERRY_FENCED } },
	{ "OPENING at the origin",
	  FERRY_OPENING,
	  FERRY_ROLE_ORIGIN,
	  true,
	  REFUSED,
	  FERRY_APP_ABORTED,
	  FERRY_APP_DISCARD,
	  { FERRY_OPENING, FERRY_LOCAL, FERRY_OPENING } },
	{ "REMOTE",
	  FERRY_REMOTE,
	  FERRY_ROLE_ORIGIN,
	  true,
	  FERRY_APP_OFFERED,
	  FERRY_APP_COMMITTED,
	  FERRY_APP_DISCARD,
	  { FERRY_LOCAL, FERRY_REMOTE, FERRY_REMOTE } },
	{ "GONE",
	  FERRY_GONE,
	  FERRY_ROLE_ORIGIN,
	  true,
	  FERRY_APP_OFFERED,
	  FERRY_APP_COMMITTED,
	  FERRY_APP_DISCARD,
	  { FERRY_LOCAL, FERRY_GONE, FERRY_GONE } },
	{ "PREPARED",
	  FERRY_PREPARED,
	  FERRY_ROLE_DESTINATION,
	  true,
	  REFUSED,
	  REFUSED,
	  NOTHING,
	  { FERRY_PREPARED, FERRY_PREPARED, FERRY_PREPARED } },
	{ "OPENING at the destination",
	  FERRY_OPENING,
	  FERRY_ROLE_DESTINATION,
	  true,
	  REFUSED,
	  REFUSED,
	  FERRY_APP_GO,
	  { FERRY_OPENING, FERRY_OPENING, FERRY_LOCAL } },
};

/* What must stay as it is: a unit of the other application, of two sockets. */
struct victim {
	struct pair pair;
	int udp;
	struct unit *unit, copy;
	uint64_t word;
	struct ferry_record record;
	struct repair_image images[2];
};

static void victim_open(struct world *w, struct victim *v, bool v6)
{
	struct ferry_app_socket none[2] = {};
	const char *refusal = "none";
	int fds[2];

	pair_to_service(&v->pair, v6);
	v->udp = udp_at_service(v6, 4444);
	fds[0] = v->pair.server;
	fds[1] = v->udp;
	if (unit_offer(&w->a, w->two.app, 1, fds, none, 2, &v->unit, &refusal))
		fail_msg("the victim: %s", refusal);
	for (int i = 0; i < 2; i++)
		repair_identify(fds[i], &v->images[i]);
	v->copy = *v->unit;
	v->word = unit_word(&w->a.dp, v->unit->index);
	v->record = *unit_record(&w->a.dp, v->unit->index);
}

static void victim_unharmed(struct world *w, const struct victim *v)
{
	assert_ptr_equal(unit_by_index(&w->a, v->copy.index), v->unit);
	assert_ptr_equal(v->unit->app, w->two.app);
	assert_int_equal(v->unit->count, 2);
	assert_ptr_equal(v->unit->move, NULL);
	assert_memory_equal(v->unit->uuid, v->copy.uuid, 16);
	assert_int_equal(unit_word(&w->a.dp, v->copy.index), v->word);
	assert_memory_equal(unit_record(&w->a.dp, v->copy.index), &v->record, sizeof(v->record));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(table_find(&w->a.dp.flows, &v->images[i].flow), v->copy.index);
		assert_memory_equal(&v->unit->flows[i], &v->images[i].flow,
				    sizeof(struct ferry_flow));
	}
	assert_int_equal(repair_is_frozen(v->pair.server), 0);
}

static void victim_close(struct victim *v)
{
	pair_close(&v->pair);
	close_fd(&v->udp);
}

static uint32_t state_of(struct world *w, uint32_t index)
{
	return FERRY_WORD_STATE(unit_word(&w->a.dp, index));
}

/* No flow may name a unit that is free: its number is another's later. */
static int no_stray(const struct ferry_flow *flow, uint32_t unit, void *arg)
{
	struct world *w = arg;
	char text[FLOW_TEXT];

	if (state_of(w, unit) == FERRY_FREE)
		fail_msg("%s names unit %u, which is free", flow_text(flow, text), unit);
	return 0;
}

struct bundle {
	struct ferry_bundle head;
	struct ferry_bundle_socket sockets[4];
};

static struct bundle good_bundle(unsigned int n)
{
	struct bundle b = { .head = { FERRY_BUNDLE_MAGIC, n, {}, {}, 0, 0 } };

	memcpy(b.head.uuid, the_uuid, 16);
	memcpy(b.head.move_id, the_move, 16);
	for (unsigned int i = 0; i < n; i++)
		snprintf(b.sockets[i].role, 16, "r%u", i);
	return b;
}

static void tell_bundle(struct side *s, const struct bundle *b, size_t size)
{
	static const uint8_t none[16];
	int fd = memfd_create("bundle", MFD_CLOEXEC);

	assert_int_equal(write(fd, b, size), size);
	assert_int_equal(tell(s, FERRY_APP_BUNDLE, 0, 0, none, &fd, 1, false), 0);
	close(fd);
}

static int resume_with(struct side *s, int was, const int *fds, unsigned int n)
{
	struct bundle b = good_bundle(n);

	if (was == FERRY_RESUME_LENT)
		tell_bundle(s, &b, sizeof(b));
	return tell(s, FERRY_APP_RESUME, HANDLE, was, the_uuid, fds, n, false);
}

static void hears(struct side *s, uint16_t answer)
{
	struct ferry_app_message m = heard(s);

	assert_int_equal(m.type, answer == REFUSED ? FERRY_APP_OFFERED : answer);
	assert_int_equal(m.text[0] != 0, answer == REFUSED || m.type == FERRY_APP_ABORTED);
	if (m.type == FERRY_APP_GO || m.type == FERRY_APP_DISCARD)
		assert_int_equal(m.handle, HANDLE);
	else if (m.type)
		assert_int_equal(m.id, HANDLE);
	assert_int_equal(heard(s).type, 0);
}

/* A unit of two connections and a bound port: as an agent left them, adopted by another one. */
struct left {
	struct pair pairs[2];
	int fds[3];
	unsigned int n;
	uint32_t index;
	struct repair_image images[3];
};

static void left_open(struct world *w, struct left *l, const struct row *r, bool v6)
{
	memset(l, 0, sizeof(*l));
	l->n = 3;
	for (int i = 0; i < 2; i++) {
		pair_to_service(&l->pairs[i], v6);
		l->fds[i] = l->pairs[i].server;
		if (r->frozen)
			in_repair(l->fds[i], true);
	}
	l->fds[2] = udp_at_service(v6, 5555);
	for (int i = 0; i < 3; i++)
		repair_identify(l->fds[i], &l->images[i]);
	l->index = leave(w, l->fds, l->n, r->state, r->role, w->a.netns);
	assert_int_equal(units_adopt(&w->a), 0);
}

static void left_close(struct left *l)
{
	for (int i = 0; i < 2; i++)
		pair_close(&l->pairs[i]);
	close_fd(&l->fds[2]);
}

static uint32_t now_at(struct world *w, const struct left *l)
{
	uint32_t index = table_find(&w->a.dp.flows, &l->images[0].flow);

	for (unsigned int i = 1; i < l->n; i++)
		assert_int_equal(table_find(&w->a.dp.flows, &l->images[i].flow), index);
	return index;
}

static void the_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows) * 3 * 2 * 2; i++) {
		const struct row *r = &rows[i / 12];
		int was = (int)(i / 4 % 3);
		bool v6 = i % 2, other_order = i / 2 % 2;
		const uint16_t answers[] = { r->ours, r->quiesced, r->lent };
		struct world w;
		struct left l;
		struct victim v;
		int fds[3];

		print_message("%s, said to be %d, %s%s\n", r->name, was, v6 ? "IPv6" : "IPv4",
			      other_order ? ", in another order" : "");
		world_open(&w);
		left_open(&w, &l, r, v6);
		victim_open(&w, &v, v6);
		for (int k = 0; k < 3; k++)
			fds[k] = l.fds[other_order ? 2 - k : k];
		assert_int_equal(resume_with(&w.one, was, fds, l.n), 0);
		hears(&w.one, answers[was]);
		assert_int_equal(state_of(&w, now_at(&w, &l)), r->after[was]);
		if (answers[was] == FERRY_APP_ABORTED || answers[was] == FERRY_APP_GO)
			for (int k = 0; k < 2; k++)
				assert_int_equal(repair_is_frozen(l.fds[k]), 0);
		victim_unharmed(&w, &v);
		/* again, as its application may: twice the same changes nothing more */
		resume_with(&w.one, was, fds, l.n);
		while (heard(&w.one).type)
			;
		assert_int_equal(state_of(&w, now_at(&w, &l)), r->after[was]);
		victim_unharmed(&w, &v);
		table_walk(&w.a.dp.flows, no_stray, &w);
		left_close(&l);
		victim_close(&v);
		world_close(&w);
	}
}

enum set { FEWER, MORE, OTHERS, TWICE, TWIN_UDP, NO_SOCKET, ALL_OTHERS, SETS };
static const char *const sets[] = { "one is missing",          "one too many",
				    "one is another unit's",   "the same descriptor twice",
				    "two sockets of one port", "one is no socket",
				    "all are another unit's" };

/* The unit's three, but; how many. */
static unsigned int make_set(enum set set, const struct left *l, const struct victim *v, int *spare,
			     int fds[4])
{
	memcpy(fds, l->fds, sizeof(l->fds));
	switch (set) {
	case FEWER:
		return 2;
	case MORE:
		fds[3] = v->pair.client;
		return 4;
	case OTHERS:
		fds[1] = v->pair.server;
		return 3;
	case TWICE:
		fds[1] = fds[0];
		return 3;
	case TWIN_UDP:
		fds[1] = *spare;
		return 3;
	case NO_SOCKET:
		fds[1] = v->pair.listener;
		return 3;
	default:
		fds[0] = v->pair.server;
		fds[1] = v->udp;
		return 2;
	}
}

static void wrong_sets(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows) * 3 * SETS * 2; i++) {
		const struct row *r = &rows[i / (3 * SETS * 2)];
		int was = (int)(i / (SETS * 2) % 3), fds[4], spare;
		enum set set = i / 2 % SETS;
		bool v6 = i % 2;
		unsigned int n;
		struct world w;
		struct left l;
		struct victim v;
		uint64_t word;
		struct ferry_app_message m;

		print_message("%s, said to be %d, %s, %s\n", r->name, was, sets[set],
			      v6 ? "IPv6" : "IPv4");
		world_open(&w);
		left_open(&w, &l, r, v6);
		victim_open(&w, &v, v6);
		spare = udp_at_service(v6, 5555);
		n = make_set(set, &l, &v, &spare, fds);
		word = unit_word(&w.a.dp, l.index);
		assert_int_equal(resume_with(&w.one, was, fds, n), 0);
		m = heard(&w.one);
		assert_int_not_equal(m.type, 0);
		assert_int_not_equal(m.type, FERRY_APP_GO);
		victim_unharmed(&w, &v);
		if (l.index && r->state != FERRY_LOCAL && r->state != FERRY_REMOTE &&
		    r->state != FERRY_GONE)
			assert_int_equal(unit_word(&w.a.dp, l.index), word);
		if (m.type == FERRY_APP_OFFERED || m.type == FERRY_APP_ABORTED)
			assert_memory_not_equal(m.uuid, the_uuid, 16);
		table_walk(&w.a.dp.flows, no_stray, &w);
		close_app(&w, &w.one);
		table_walk(&w.a.dp.flows, no_stray, &w);
		close(spare);
		left_close(&l);
		victim_close(&v);
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table),
		cmocka_unit_test(wrong_sets),
	};

	return cmocka_run_group_tests_name("resume", tests, two_namespaces, NULL);
}
