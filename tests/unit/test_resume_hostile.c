/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Applications that lie to an agent about units of an earlier one, beyond what test_resume.c does
 * with sets of sockets: from another network namespace, with another's uuid, with bundles that are
 * not what they should be, and while the agent has no descriptor to spare. The invariant: what an
 * application does not hold is as before, and a prepared unit is never discarded for want of means.
 */
#include <sys/resource.h>
#include "resume_world.h"

#define HANDLE 7

static const uint8_t none[16];

static int on_away(void)
{
	enter_ns(away);
	return 0;
}

/* A unit of one connection, in the namespace where the test is; adopted by the agent of `home`. */
struct left {
	struct pair pair;
	struct repair_image image;
	uint32_t index;
};

static void left_open(struct world *w, struct left *l, bool v6, uint32_t state, uint8_t role,
		      bool frozen)
{
	pair_to_service(&l->pair, v6);
	in_repair(l->pair.server, frozen);
	assert_int_equal(repair_identify(l->pair.server, &l->image), 0);
	l->index = leave(w, &l->pair.server, 1, state, role, socket_netns(l->pair.server));
	assert_int_equal(units_adopt(&w->a), 0);
}

static const struct {
	const char *name;
	uint32_t state;
	uint8_t role;
} states[] = {
	{ "LOCAL", FERRY_LOCAL, 0 },
	{ "FENCED", FERRY_FENCED, FERRY_ROLE_ORIGIN },
	{ "OPENING at the origin", FERRY_OPENING, FERRY_ROLE_ORIGIN },
	{ "PREPARED", FERRY_PREPARED, FERRY_ROLE_DESTINATION },
	{ "OPENING at the destination", FERRY_OPENING, FERRY_ROLE_DESTINATION },
};

struct bundle {
	struct ferry_bundle head;
	struct ferry_bundle_socket sockets[2];
};

static struct bundle good_bundle(void)
{
	struct bundle b = { .head = { FERRY_BUNDLE_MAGIC, 1, {}, {}, 0, 0 } };

	memcpy(b.head.uuid, the_uuid, 16);
	memcpy(b.head.move_id, the_move, 16);
	return b;
}

static int tell_bundle(struct side *s, const struct bundle *b, size_t size, bool cut)
{
	int fd = memfd_create("bundle", MFD_CLOEXEC), r;

	assert_int_equal(write(fd, b, size), size);
	r = tell(s, FERRY_APP_BUNDLE, 0, 0, none, &fd, !cut, cut);
	close(fd);
	return r;
}

static void resume_with(struct side *s, int was, int fd)
{
	struct bundle b = good_bundle();

	if (was == FERRY_RESUME_LENT)
		assert_int_equal(tell_bundle(s, &b, sizeof(b), false), 0);
	assert_int_equal(tell(s, FERRY_APP_RESUME, HANDLE, was, the_uuid, &fd, 1, false), 0);
}

/* Somebody with a namespace of its own makes a socket there of a tuple that lives here. */
static void the_same_tuple_elsewhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states) * 4 * 2 * 2; i++) {
		bool v6 = i % 2, frozen = i / 2 % 2;
		int was = (int)(i / 4 % 4), stranger; /* 3: OFFER */
		struct world w;
		struct left l;
		uint64_t word;

		print_message("%s, %d, %s%s\n", states[i / 16].name, was, v6 ? "IPv6" : "IPv4",
			      frozen ? ", frozen" : "");
		world_open(&w);
		left_open(&w, &l, v6, states[i / 16].state, states[i / 16].role, frozen);
		word = unit_word(&w.a.dp, l.index);
		on_away();
		stranger = twin(&l.image);
		in_repair(stranger, frozen);
		close_app(&w, &w.two);
		open_app(&w, &w.two, "two", socket_netns(stranger));
		enter_ns(home);
		if (was == 3)
			tell(&w.two, FERRY_APP_OFFER, HANDLE, 0, none, &stranger, 1, false);
		else
			resume_with(&w.two, was, stranger);
		assert_int_equal(heard(&w.two).type,
				 was == 2 ? FERRY_APP_DISCARD : FERRY_APP_OFFERED);
		assert_int_equal(unit_word(&w.a.dp, l.index), word);
		assert_int_equal(table_find(&w.a.dp.flows, &l.image.flow), l.index);
		for (struct unit *u = w.a.units; u; u = u->next)
			assert_null(u->app);
		for (struct move *m = w.a.moves; m; m = m->next)
			assert_null(m->app);
		/* and its own is not kept from it */
		resume_with(&w.one,
			    states[i / 16].role == FERRY_ROLE_DESTINATION ? 2 :
			    states[i / 16].state == FERRY_LOCAL           ? 0 :
									    1,
			    l.pair.server);
		assert_int_not_equal(unit_record(&w.a.dp, l.index)->app, 0);
		assert_true((unit_by_index(&w.a, l.index) &&
			     unit_by_index(&w.a, l.index)->app == w.one.app) ||
			    (w.a.moves && w.a.moves->app == w.one.app));
		close(stranger);
		pair_close(&l.pair);
		world_close(&w);
	}
}

/* Offers of the tuple of a unit that is in use, and of one that was given up. */
static void offers_from_elsewhere(void **state)
{
	struct ferry_app_socket role[1] = {};

	(void)state;
	for (int i = 0; i < 4; i++) {
		bool v6 = i % 2, given_up = i / 2;
		struct unit *u, *other;
		const char *refusal = "none";
		struct repair_image image;
		struct pair pair;
		struct world w;
		int stranger;

		world_open(&w);
		close_app(&w, &w.one);
		on_away();
		pair_to_service(&pair, v6);
		assert_int_equal(repair_identify(pair.server, &image), 0);
		open_app(&w, &w.one, "one", socket_netns(pair.server));
		enter_ns(home);
		stranger = twin(&image);
		in_repair(stranger, false);
		/* the unit, as if the host had routed the address */
		u = unit_new(&w.a, w.one.app, 1, 1);
		unit_place(&w.a, u, leave(&w, &pair.server, 1, FERRY_LOCAL, 0,
					  socket_netns(pair.server)));
		memcpy(u->uuid, the_uuid, 16);
		u->flows[0] = image.flow;
		u->cookies[0] = socket_cookie(pair.server);
		if (given_up)
			unit_give_up(u);
		assert_int_equal(unit_offer(&w.a, w.two.app, 1, &stranger, role, 1, &other,
					    &refusal),
				 -EINVAL);
		assert_string_equal(refusal, "flow-owned");
		assert_ptr_equal(unit_by_index(&w.a, u->index), u);
		assert_ptr_equal(u->app, given_up ? NULL : w.one.app);
		close(stranger);
		pair_close(&pair);
		world_close(&w);
	}
}

enum lie { MISSING, EMPTY, HEAD_ONLY, NO_MAGIC, COUNT, UUID, MOVE, HUGE, LIES };
static const char *const lies[] = { "missing",
				    "empty",
				    "without its sockets",
				    "not whole",
				    "of another count",
				    "of another unit",
				    "of another move",
				    "with octets that are not there" };

static void bundles_that_lie(void **state)
{
	(void)state;
	for (size_t i = 0; i < LIES * 3; i++) {
		static const uint32_t at[] = { FERRY_PREPARED, FERRY_OPENING, FERRY_LOCAL };
		enum lie lie = i / 3;
		struct bundle b = good_bundle();
		struct ferry_app_message m;
		struct world w;
		struct left l;
		uint64_t word;

		print_message("%s, %s\n", lies[lie], state_name(at[i % 3]));
		world_open(&w);
		left_open(&w, &l, false, at[i % 3], FERRY_ROLE_DESTINATION,
			  at[i % 3] != FERRY_LOCAL);
		word = unit_word(&w.a.dp, l.index);
		b.head.magic -= lie == NO_MAGIC;
		b.head.count += lie == COUNT;
		b.head.uuid[0] ^= lie == UUID;
		b.head.move_id[0] ^= lie == MOVE;
		if (lie == HUGE)
			b.sockets[0] = (struct ferry_bundle_socket){ .unsent = UINT32_MAX,
								     .unsent_at = UINT64_MAX,
								     .datagrams = UINT32_MAX,
								     .buf_lock = UINT32_MAX,
								     .keepalive = UINT32_MAX,
								     .user_timeout = UINT32_MAX,
								     .reuseaddr = UINT32_MAX,
								     .peek_off = UINT32_MAX };
		memset(b.sockets[0].role, 'x', lie == HUGE ? sizeof(b.sockets[0].role) : 0);
		if (lie != MISSING)
			assert_int_equal(tell_bundle(&w.one, &b,
						     lie == EMPTY     ? 0 :
						     lie == HEAD_ONLY ? sizeof(b.head) :
									sizeof(b),
						     false),
					 0);
		assert_int_equal(tell(&w.one, FERRY_APP_RESUME, HANDLE, FERRY_RESUME_LENT, the_uuid,
				      &l.pair.server, 1, false),
				 0);
		m = heard(&w.one);
		if (lie == HUGE) { /* its own harm only */
			assert_int_not_equal(m.type, FERRY_APP_DISCARD);
		} else {
			assert_int_equal(m.type, FERRY_APP_DISCARD);
			assert_int_equal(unit_word(&w.a.dp, l.index), word);
		}
		pair_close(&l.pair);
		world_close(&w);
	}
}

/* RESUME says which; the bundle before it may be of an earlier one. */
static void a_bundle_is_for_one(void **state)
{
	struct bundle b = good_bundle();
	struct world w;
	struct left l;

	(void)state;
	world_open(&w);
	left_open(&w, &l, false, FERRY_PREPARED, FERRY_ROLE_DESTINATION, true);
	assert_int_equal(tell_bundle(&w.one, &b, sizeof(b), false), 0);
	assert_int_equal(tell(&w.one, FERRY_APP_RESUME, 1, FERRY_RESUME_LENT, none, &l.pair.client,
			      1, false),
			 0);
	assert_int_equal(heard(&w.one).type, FERRY_APP_DISCARD);
	assert_int_equal(tell(&w.one, FERRY_APP_RESUME, 2, FERRY_RESUME_LENT, the_uuid,
			      &l.pair.server, 1, false),
			 0);
	assert_int_equal(heard(&w.one).type, FERRY_APP_DISCARD);
	assert_int_equal(FERRY_WORD_STATE(unit_word(&w.a.dp, l.index)), FERRY_PREPARED);
	pair_close(&l.pair);
	world_close(&w);
}

/* What cannot be received now comes again, with a new connection: nothing is answered. */
static void no_descriptor_to_spare(void **state)
{
	struct bundle b = good_bundle();
	struct world w;
	struct left l;

	(void)state;
	world_open(&w);
	left_open(&w, &l, false, FERRY_PREPARED, FERRY_ROLE_DESTINATION, true);
	assert_true(tell_bundle(&w.one, &b, sizeof(b), true) < 0);
	assert_int_equal(tell_bundle(&w.one, &b, sizeof(b), false), 0);
	for (int was = 0; was <= FERRY_RESUME_LENT; was++)
		assert_true(tell(&w.one, FERRY_APP_RESUME, HANDLE, was, the_uuid, NULL, 0, true) <
			    0);
	assert_int_equal(heard(&w.one).type, 0);
	close_app(&w, &w.one);
	assert_int_equal(FERRY_WORD_STATE(unit_word(&w.a.dp, l.index)), FERRY_PREPARED);
	open_app(&w, &w.one, "one", w.a.netns);
	resume_with(&w.one, FERRY_RESUME_LENT, l.pair.server);
	assert_int_equal(heard(&w.one).type, 0); /* the origin is asked */
	assert_ptr_equal(w.a.moves->app, w.one.app);
	/* nor does another unit's misfortune end it: the sockets are there, and so it is waited for */
	assert_true(tell(&w.one, FERRY_APP_RESUME, 1, FERRY_RESUME_LENT, none, NULL, 0, true) < 0);
	close_app(&w, &w.one);
	assert_int_equal(FERRY_WORD_STATE(unit_word(&w.a.dp, l.index)), FERRY_PREPARED);
	assert_non_null(w.a.moves);
	open_app(&w, &w.one, "one", w.a.netns);
	resume_with(&w.one, FERRY_RESUME_LENT, l.pair.server);
	assert_int_equal(heard(&w.one).type, 0);
	assert_ptr_equal(w.a.moves->app, w.one.app);
	pair_close(&l.pair);
	world_close(&w);
}

/* What a user may hold at most, it may hold in all, whoever was the agent when it offered it. */
static void what_is_taken_up_is_counted(void **state)
{
	struct world w;
	struct left l;

	(void)state;
	world_open(&w);
	left_open(&w, &l, false, FERRY_LOCAL, 0, false);
	assert_int_equal(w.a.units->uid, CONFIG_NOBODY);
	resume_with(&w.one, FERRY_RESUME_OURS, l.pair.server);
	assert_int_equal(heard(&w.one).type, FERRY_APP_OFFERED);
	assert_int_equal(w.a.units->uid, w.one.app->peer.uid);
	pair_close(&l.pair);
	world_close(&w);
}

/* RESUME for a unit that has left this node, by somebody who knows no more than its uuid. */
static void records_are_not_for_strangers(void **state)
{
	static const uint32_t at[] = { FERRY_REMOTE, FERRY_GONE, FERRY_PREPARED, FERRY_FENCED };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(at) * 2; i++) {
		struct ferry_record before;
		struct pair other;
		struct world w;
		struct left l;

		world_open(&w);
		left_open(&w, &l, false, at[i / 2],
			  at[i / 2] == FERRY_PREPARED ? FERRY_ROLE_DESTINATION : FERRY_ROLE_ORIGIN,
			  true);
		pair_to_service(&other, false);
		in_repair(other.server, i % 2);
		before = *unit_record(&w.a.dp, l.index);
		resume_with(&w.two, FERRY_RESUME_QUIESCED, other.server);
		assert_memory_equal(unit_record(&w.a.dp, l.index), &before, sizeof(before));
		pair_close(&other);
		pair_close(&l.pair);
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_tuple_elsewhere),
		cmocka_unit_test(offers_from_elsewhere),
		cmocka_unit_test(bundles_that_lie),
		cmocka_unit_test(a_bundle_is_for_one),
		cmocka_unit_test(no_descriptor_to_spare),
		cmocka_unit_test(what_is_taken_up_is_counted),
		cmocka_unit_test(records_are_not_for_strangers),
	};

	return cmocka_run_group_tests_name("resume, hostile", tests, two_namespaces, NULL);
}
