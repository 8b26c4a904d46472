/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What another node may ask for (ctl/move/limits.c), as values: a trailer of exactly the move that
 * was answered READY, and so many moves and sockets at a time.
 */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "move/move.h"

#define NODE 2
#define QUEUES 150 /* octets, of one TCP socket */

static uint8_t id[16] = "0123456789abcdef", other[16] = "fedcba9876543210";

static const struct {
	const char *name;
	enum message type;
	uint32_t node, size;
	bool origin, ready, other_id, other_uuid, admitted;
} rows[] = {
	{ "as it should be", MSG_PREPARE, NODE, QUEUES, .ready = true, .admitted = true },
	{ "an octet too many", MSG_PREPARE, NODE, QUEUES + 1, .ready = true },
	{ "an octet too few", MSG_PREPARE, NODE, QUEUES - 1, .ready = true },
	{ "4 GB", MSG_PREPARE, NODE, UINT32_MAX, .ready = true },
	{ "another message", MSG_PREFLIGHT, NODE, QUEUES, .ready = true },
	{ "another node", MSG_PREPARE, NODE + 1, QUEUES, .ready = true },
	{ "READY was not said", MSG_PREPARE, NODE, QUEUES, .ready = false },
	{ "a move that leaves here", MSG_PREPARE, NODE, QUEUES, .origin = true, .ready = true },
	{ "another attempt", MSG_PREPARE, NODE, QUEUES, .ready = true, .other_id = true },
	{ "another unit", MSG_PREPARE, NODE, QUEUES, .ready = true, .other_uuid = true },
};

static void trailers_that_were_asked_for(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = rows[i].ready ? 0 : -1;
		struct move m = { .origin = rows[i].origin, .peer = NODE, .fds = &fd, .count = 1 };
		Peer__Socket socket = PEER__SOCKET__INIT, *list[] = { &socket };
		Peer__Flow flow = PEER__FLOW__INIT;
		Peer__Move msg = PEER__MOVE__INIT;
		struct agent a = { .moves = &m };

		memcpy(m.id, id, 16);
		memcpy(m.uuid, id, 16);
		msg.move_id = (ProtobufCBinaryData){ 16, rows[i].other_id ? other : id };
		msg.uuid = (ProtobufCBinaryData){ 16, rows[i].other_uuid ? other : id };
		flow.protocol = IPPROTO_TCP;
		socket.flow = &flow;
		socket.inq = 100;
		socket.outq = QUEUES - 100;
		msg.sockets = list;
		msg.n_sockets = 1;
		printf("%s\n", rows[i].name);
		assert_int_equal(move_admits(&a, rows[i].node, rows[i].type, &msg, rows[i].size),
				 rows[i].admitted);
	}
}

static void sums_do_not_wrap(void **state)
{
	Peer__Socket socket = PEER__SOCKET__INIT, *list[4] = { &socket, &socket, &socket, &socket };
	Peer__Flow flow = PEER__FLOW__INIT;
	Peer__Move msg = PEER__MOVE__INIT;
	struct agent a = {};

	(void)state;
	flow.protocol = IPPROTO_TCP;
	socket.flow = &flow;
	socket.inq = 1U << 31;
	msg.sockets = list;
	msg.n_sockets = 4; /* 2^33 in all, 0 in 32 bits */
	msg.uuid = msg.move_id = (ProtobufCBinaryData){ 16, id };
	assert_false(move_admits(&a, NODE, MSG_PREPARE, &msg, 0));
}

static const struct {
	const char *name;
	unsigned int moves, sockets; /* each move has */
	bool origin, crowded;
} crowds[] = {
	{ "none", 0, 1, false, false },
	{ "one less than too many", 1023, 1, false, false },
	{ "too many", 1024, 1, false, true },
	{ "large units", 64, 253, false, false },
	{ "too many sockets", 65, 253, false, true },
	{ "moves that leave here", 2000, 253, true, false },
};

static void moves_at_a_time(void **state)
{
	static struct move moves[2000];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(crowds); i++) {
		struct agent a = {};

		for (unsigned int k = 0; k < crowds[i].moves; k++) {
			moves[k] = (struct move){ .next = a.moves, .origin = crowds[i].origin,
						  .peer = NODE, .count = crowds[i].sockets };
			a.moves = &moves[k];
		}
		printf("%s\n", crowds[i].name);
		assert_int_equal(moves_crowded(&a, NODE), crowds[i].crowded);
		assert_false(moves_crowded(&a, NODE + 1));
		assert_int_equal(moves_count(&a), crowds[i].moves);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trailers_that_were_asked_for),
		cmocka_unit_test(sums_do_not_wrap),
		cmocka_unit_test(moves_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
