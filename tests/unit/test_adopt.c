/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other nodes may say of a move whose agent was replaced and whose application is not back yet
 * (ctl/move/dispatch.c over adopt.c): the right node, of the right move, decides it; any other
 * message, and one that comes too late, leaves word, record, flows and the wait as they are.
 */
#include "identity_world.h"
#include "resume_world.h"

#define HANDLE 7
enum { STAYS, GOES, FLIPS }; /* what the message does to the unit */

static const struct row {
	const char *name;
	enum message type;
	uint32_t from, epoch;
	bool other_move, other_unit, dry_run;
	int does;
} rows[] = {
	{ "FLIPPED", MSG_FLIPPED, PEER, EPOCH, .does = FLIPS },
	{ "FLIPPED by another node", MSG_FLIPPED, PEER + 1, EPOCH, .does = STAYS },
	{ "FLIPPED, another move", MSG_FLIPPED, PEER, EPOCH, .other_move = true, .does = STAYS },
	{ "FLIPPED, another unit", MSG_FLIPPED, PEER, EPOCH, .other_unit = true, .does = STAYS },
	{ "ABORT", MSG_ABORT, PEER, EPOCH, .does = GOES },
	{ "ABORT by another node", MSG_ABORT, PEER + 1, EPOCH, .does = STAYS },
	{ "ABORT, another move", MSG_ABORT, PEER, EPOCH, .other_move = true, .does = STAYS },
	{ "ABORT, another unit", MSG_ABORT, PEER, EPOCH, .other_unit = true, .does = STAYS },
	{ "PREPARE, another move", MSG_PREPARE, PEER, EPOCH, .other_move = true, .does = STAYS },
	{ "a newer attempt", MSG_PREFLIGHT, PEER, EPOCH + 2, .other_move = true, .does = GOES },
	{ "an attempt as old", MSG_PREFLIGHT, PEER, EPOCH, .other_move = true, .does = STAYS },
	{ "an older attempt", MSG_PREFLIGHT, PEER, EPOCH - 2, .other_move = true, .does = STAYS },
	{ "a newer attempt by another node", MSG_PREFLIGHT, PEER + 1, EPOCH + 2, .other_move = true,
	  .does = STAYS },
	{ "a newer dry run", MSG_PREFLIGHT, PEER, EPOCH + 2, .other_move = true, .dry_run = true,
	  .does = STAYS },
	/* said before a flip only: it is refused, and the origin keeps the unit */
	{ "a dry run of the move itself", MSG_PREFLIGHT, PEER, EPOCH, .dry_run = true,
	  .does = GOES },
	{ "the move's PREFLIGHT again", MSG_PREFLIGHT, PEER, EPOCH, .does = GOES },
	{ "the move's PREPARE again", MSG_PREPARE, PEER, EPOCH, .does = GOES },
	{ "QUERY", MSG_QUERY, PEER, EPOCH, .does = STAYS },
	{ "READY", MSG_READY, PEER, EPOCH, .does = STAYS },
	{ "PREPARED", MSG_PREPARED, PEER, EPOCH, .does = STAYS },
	{ "DONE", MSG_DONE, PEER, EPOCH, .does = STAYS },
	{ "REFUSED", MSG_REFUSED, PEER, EPOCH, .does = STAYS },
	{ "FORGET", MSG_FORGET, PEER, EPOCH + 9, .does = STAYS },
	{ "LEARN", MSG_LEARN, PEER, EPOCH + 9, .does = STAYS },
};

/* Whom the node's answers go to; they wait there. */
struct peer {
	struct channels all;
	struct channel *c;
	int end;
};

static void no_close(struct channel *c, int error, void *arg)
{
	(void)c, (void)error, (void)arg;
}

static void peer_open(struct world *w, struct peer *p)
{
	static const struct channel_ops ops = { .closed = no_close };
	int fds[2];

	*p = (struct peer){ .all = { .event = w->a.event, .ops = &ops } };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	assert_int_equal(
		channel_new(&p->c, &p->all, fds[0], identity_context(one), false, "two", NULL), 0);
	p->end = fds[1];
}

static void peer_close(struct peer *p)
{
	channel_free(p->c);
	close(p->end);
}

static void hear(struct world *w, struct peer *p, const struct row *r)
{
	static uint8_t other[16] = "another";
	Peer__Socket socket = PEER__SOCKET__INIT, *list[] = { &socket };
	Peer__Flow flow = PEER__FLOW__INIT;
	Peer__Move m = PEER__MOVE__INIT;

	m.uuid = (ProtobufCBinaryData){ 16, r->other_unit ? other : (uint8_t *)the_uuid };
	m.move_id = (ProtobufCBinaryData){ 16, r->other_move ? other : (uint8_t *)the_move };
	m.epoch = r->epoch;
	m.dry_run = r->dry_run;
	m.node = r->from;

	socket.flow = &flow;
	m.sockets = list;
	m.n_sockets = 1;
	move_message(&w->a, p->c, r->from, r->type, &m, NULL, 0);
}

struct left {
	struct pair pair;
	struct repair_image image;
	uint32_t index;
};

static void left_open(struct world *w, struct left *l, uint32_t state, uint8_t role, bool held)
{
	pair_to_service(&l->pair, false);
	in_repair(l->pair.server, true);
	assert_int_equal(repair_identify(l->pair.server, &l->image), 0);
	l->index = leave(w, &l->pair.server, 1, state, role, w->a.netns);
	unit_record(&w->a.dp, l->index)->held = held;
	assert_int_equal(units_adopt(&w->a), 0);
}

static void resume_lent(struct side *s, int fd)
{
	struct {
		struct ferry_bundle head;
		struct ferry_bundle_socket socket;
	} b = { .head = { FERRY_BUNDLE_MAGIC, 1, {}, {}, 0, 0 } };
	int memfd = memfd_create("bundle", MFD_CLOEXEC);

	memcpy(b.head.uuid, the_uuid, 16);
	memcpy(b.head.move_id, the_move, 16);
	assert_int_equal(write(memfd, &b, sizeof(b)), sizeof(b));
	assert_int_equal(tell(s, FERRY_APP_BUNDLE, 0, 0, the_uuid, &memfd, 1, false), 0);
	close(memfd);
	assert_int_equal(
		tell(s, FERRY_APP_RESUME, HANDLE, FERRY_RESUME_LENT, the_uuid, &fd, 1, false), 0);
}

static void to_one_that_waits(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows) * 4; i++) {
		const struct row *r = &rows[i / 4];
		bool held = i % 2, twice = i / 2 % 2;
		struct ferry_record before;
		struct world w;
		struct peer p;
		struct left l;
		uint64_t word;

		print_message("%s%s%s\n", r->name, held ? ", a tombstone before" : "",
			      twice ? ", twice" : "");
		world_open(&w);
		peer_open(&w, &p);
		left_open(&w, &l, FERRY_PREPARED, FERRY_ROLE_DESTINATION, held);
		word = unit_word(&w.a.dp, l.index);
		before = *unit_record(&w.a.dp, l.index);
		for (int k = 0; k <= twice; k++)
			hear(&w, &p, r);
		if (r->does == GOES) {
			assert_int_equal(unit_word(&w.a.dp, l.index),
					 held ? FERRY_WORD(EPOCH + 1, FERRY_REMOTE, PEER) : 0);
			assert_int_equal(table_find(&w.a.dp.flows, &l.image.flow),
					 held ? l.index : 0);
		} else {
			assert_int_equal(unit_word(&w.a.dp, l.index), word);
			assert_memory_equal(unit_record(&w.a.dp, l.index), &before, sizeof(before));
			assert_int_equal(table_find(&w.a.dp.flows, &l.image.flow), l.index);
			assert_non_null(w.a.moves);
			assert_null(w.a.moves->next);
			assert_null(w.a.moves->dry);
			assert_int_equal(w.a.moves->told_flip, r->does == FLIPS);
		}
		/* and then its application */
		resume_lent(&w.one, l.pair.server);
		assert_int_equal(heard(&w.one).type, r->does == GOES  ? FERRY_APP_DISCARD :
						     r->does == FLIPS ? FERRY_APP_GO :
									0);
		if (r->does == FLIPS)
			assert_int_equal(unit_word(&w.a.dp, l.index),
					 FERRY_WORD(EPOCH + 1, FERRY_LOCAL, 0));
		assert_int_equal(repair_is_frozen(l.pair.server), r->does != FLIPS);
		peer_close(&p);
		pair_close(&l.pair);
		world_close(&w);
	}
}

/* "It is not there": believed of the move that was flipped to that node, and of no other. */
static void lost_there(void **state)
{
	static const struct {
		uint32_t at;
		struct row r;
		bool gone;
	} said[] = {
		{ FERRY_REMOTE, { "", MSG_REFUSED, PEER, EPOCH, false, false, false, 0 }, true },
		{ FERRY_REMOTE,
		  { "", MSG_REFUSED, PEER + 1, EPOCH, false, false, false, 0 },
		  false },
		{ FERRY_REMOTE, { "", MSG_REFUSED, PEER, EPOCH, true, false, false, 0 }, false },
		{ FERRY_REMOTE,
		  { "", MSG_REFUSED, PEER, EPOCH + 2, false, false, false, 0 },
		  false },
		{ FERRY_FENCED, { "", MSG_REFUSED, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_OPENING, { "", MSG_REFUSED, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_FENCED, { "", MSG_ABORT, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_FENCED, { "", MSG_QUERY, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_FENCED, { "", MSG_FLIPPED, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_LOCAL, { "", MSG_FLIPPED, PEER, EPOCH, false, false, false, 0 }, false },
		{ FERRY_LOCAL, { "", MSG_FORGET, PEER, EPOCH + 9, false, false, false, 0 }, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
		struct world w;
		struct peer p;
		struct left l;
		uint64_t word;

		world_open(&w);
		peer_open(&w, &p);
		left_open(&w, &l, said[i].at, FERRY_ROLE_ORIGIN, false);
		word = unit_word(&w.a.dp, l.index);
		hear(&w, &p, &said[i].r);
		assert_int_equal(unit_word(&w.a.dp, l.index),
				 said[i].gone ? FERRY_WORD(EPOCH + 2, FERRY_GONE, 0) : word);
		assert_int_equal(table_find(&w.a.dp.flows, &l.image.flow), l.index);
		peer_close(&p);
		pair_close(&l.pair);
		world_close(&w);
	}
}

static int set_up(void **state)
{
	return two_namespaces(state) || make_identities(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(to_one_that_waits),
		cmocka_unit_test(lost_there),
	};

	return cmocka_run_group_tests_name("adopt", tests, set_up, drop_identities);
}
