/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between agents (ctl/peer/channel.h), two of them or one and a raw end, over TLS: HELLO
 * first and once, each broken frame ends that channel by its own reason, which the other end is
 * told, frames come whole and in order however they are cut, and a channel may be freed in any of
 * its callbacks. Who is let in at all: test_tls.c.
 */
#include "channel_world.h"

static int send_one(struct channel *c, uint32_t epoch, const struct chunk *trailer, unsigned int n)
{
	Peer__Move m = PEER__MOVE__INIT;

	m.uuid.data = m.move_id.data = (uint8_t *)id;
	m.uuid.len = m.move_id.len = 16;
	m.epoch = epoch;
	return channel_send(c, MSG_PREPARE, &m, trailer, n);
}

static void big_trailers_go_in_pieces(void **state)
{
	static uint8_t data[5][3000001];
	struct world w;
	size_t sum = 0;

	(void)state;
	open_world(&w, false);
	for (uint32_t k = 1; k <= 4; k++) {
		/* two chunks, which the socket's buffer does not hold */
		struct chunk chunks[] = { { data[k], 1 + k }, { data[k] + 1 + k, 3000000 - k } };

		for (uint32_t i = 0; i < sizeof(data[k]); i++)
			data[k][i] = (uint8_t)(k + i);
		assert_int_equal(send_one(w.left.c, k, chunks, 2), 0);
		sum += 3000001;
	}
	memset(data, 0xff, sizeof(data)); /* they were copied */
	assert_int_equal(send_one(w.left.c, 5, NULL, 0), 0);
	run(&w);
	assert_int_equal(w.right.messages, 5);
	assert_int_equal(w.right.octets, sum);
	assert_false(w.right.wrong);
	assert_int_equal(w.right.closed + w.left.closed, 0);
	close_world(&w);
}

static void limits_of_sending(void **state)
{
	static uint8_t data[1 << 20];
	struct chunk chunks[FRAME_TRAILER_MAX / sizeof(data) + 1];
	struct world w;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++)
		chunks[i] = (struct chunk){ data, sizeof(data) };
	open_world(&w, false);
	assert_int_equal(send_one(w.left.c, 1, chunks, ARRAY_SIZE(chunks)), -EMSGSIZE);
	assert_int_equal(send_one(w.left.c, 1, chunks, 1), 0);
	close_world(&w);
}

/* A whole conversation as octets: HELLO and n moves. */
static size_t conversation(uint8_t *to, uint32_t n, const char *trailer)
{
	size_t at = 0;

	for (uint32_t i = 0; i <= n; i++) {
		Peer__Hello hello = hello_of(1);
		Peer__Move m = PEER__MOVE__INIT;
		struct frame_header h = { FRAME_MAGIC, FRAME_VERSION, i ? MSG_PREPARE : MSG_HELLO,
					  0, i ? (uint32_t)strlen(trailer) : 0 };

		m.uuid.data = m.move_id.data = (uint8_t *)id;
		m.uuid.len = m.move_id.len = 16;
		m.epoch = i;
		h.body = (uint32_t)(i ? peer__move__pack(&m, to + at + sizeof(h)) :
					peer__hello__pack(&hello, to + at + sizeof(h)));
		memcpy(to + at, &h, sizeof(h));
		at += sizeof(h) + h.body;
		for (const char *p = trailer; i && *p; p++)
			to[at++] = (uint8_t)(i + (uint32_t)(p - trailer));
	}
	return at;
}

static void one_octet_at_a_time(void **state)
{
	uint8_t octets[1024];
	size_t n = conversation(octets, 3, "trailer");
	struct world w;

	(void)state;
	open_world(&w, true);
	for (size_t i = 0; i < n; i++) {
		put(&w, octets + i, 1);
		run(&w);
	}
	assert_int_equal(w.right.hellos, 1);
	assert_int_equal(w.right.messages, 3);
	assert_false(w.right.wrong);
	close_world(&w);
}

static void many_frames_in_one_read(void **state)
{
	static uint8_t octets[1 << 20];
	size_t n = conversation(octets, 900, "t");
	struct world w;

	(void)state;
	open_world(&w, true);
	put(&w, octets, n);
	run(&w);
	assert_int_equal(w.right.messages, 900);
	assert_false(w.right.wrong);
	close_world(&w);
}

static const struct {
	const char *name;
	int frame;       /* of the conversation */
	size_t at, size; /* what is overwritten in its header */
	uint64_t value;
	enum peer_reason reason;
} breaks[] = {
	{ "another magic", 0, 0, 4, 1, PEER_FRAME },
	{ "another layout", 0, 4, 2, FRAME_VERSION + 1, PEER_VERSION },
	{ "no type", 1, 6, 2, 0, PEER_TYPE },
	{ "type beyond the last", 1, 6, 2, MSG_TYPES, PEER_TYPE },
	{ "type below the optional", 1, 6, 2, MSG_OPTIONAL - 1, PEER_TYPE },
	{ "body over the limit", 1, 8, 4, FRAME_BODY_MAX + 1, PEER_SIZE },
	{ "body of 4 GB", 1, 8, 4, UINT32_MAX, PEER_SIZE },
	{ "HELLO over its limit", 0, 8, 4, FRAME_HELLO_MAX + 1, PEER_SIZE },
	{ "trailer over the limit", 1, 12, 4, FRAME_TRAILER_MAX + 1, PEER_SIZE },
	{ "trailer of 4 GB", 1, 12, 4, UINT32_MAX, PEER_SIZE },
	{ "trailer of HELLO", 0, 12, 4, 1, PEER_TRAILER },
	{ "trailer of FLIPPED", 1, 6, 10, (1ULL << 48) | MSG_FLIPPED, PEER_TRAILER },
	{ "a move before HELLO", 0, 6, 2, MSG_PREPARE, PEER_ORDER },
	{ "an unknown message before HELLO", 0, 6, 2, UINT16_MAX, PEER_ORDER },
	{ "HELLO twice", 1, 6, 2, MSG_HELLO, PEER_ORDER },
	{ "body cut: no uuid", 1, 8, 4, 4, PEER_MESSAGE },
	{ "body cut in a field", 1, 8, 4, 19, PEER_MESSAGE },
	{ "no body", 1, 8, 4, 0, PEER_MESSAGE },
};

/* What the right end said before it closed: the reason in its BYE. */
static void read_bye(struct world *w, char reason[64])
{
	uint8_t octets[8192];
	size_t size = 0;
	ssize_t n;

	reason[0] = '\0';
	while (size < sizeof(octets) &&
	       (n = tls_read(w->raw, octets + size, sizeof(octets) - size)) > 0)
		size += (size_t)n;
	for (size_t at = 0; size - at >= sizeof(struct frame_header);) {
		struct frame_header h;
		Peer__Bye *bye;

		memcpy(&h, octets + at, sizeof(h));
		at += sizeof(h);
		bye = h.type == MSG_BYE ? peer__bye__unpack(NULL, h.body, octets + at) : NULL;
		at += h.body;
		if (!bye)
			continue;
		snprintf(reason, 64, "%s", bye->reason);
		peer__bye__free_unpacked(bye, NULL);
	}
}

static void what_breaks_a_rule_ends_the_channel(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(breaks); i++) {
		uint8_t octets[1024];
		size_t n = conversation(octets, 2, ""), at = 0;
		struct world w;
		char said[64];

		for (int k = 0; k < breaks[i].frame; k++)
			at += sizeof(struct frame_header) + octets[at + 8];
		if (breaks[i].size > 8) { /* type, and a trailer of one octet */
			octets[at + 6] = (uint8_t)breaks[i].value;
			octets[at + 12] = 1;
		} else {
			memcpy(octets + at + breaks[i].at, &breaks[i].value, breaks[i].size);
		}
		open_world(&w, true);
		put(&w, octets, n);
		run(&w);
		read_bye(&w, said);
		printf("%s: %s\n", breaks[i].name, said);
		assert_int_equal(w.right.closed, 1);
		assert_int_equal(w.right.error, -EPROTO);
		assert_int_equal(w.right.reason, breaks[i].reason);
		assert_int_equal(w.right.messages, 0);
		assert_string_equal(said, peer_reason_id(breaks[i].reason));
		close_world(&w);
	}
}

/* A frame with a HELLO as it is given. */
static size_t greeting(uint8_t *octets, const Peer__Hello *hello)
{
	struct frame_header h = { FRAME_MAGIC, FRAME_VERSION, MSG_HELLO, 0, 0 };

	h.body = (uint32_t)peer__hello__pack(hello, octets + sizeof(h));
	memcpy(octets, &h, sizeof(h));
	return sizeof(h) + h.body;
}

static const struct {
	const char *name;
	uint32_t oldest, newest;
	size_t boot;
	enum peer_reason reason;
} hellos[] = {
	{ "the same version", 1, 1, 16, PEER_NONE },
	{ "no oldest: the newest only", 0, 1, 16, PEER_NONE },
	{ "newer, and ours too", 1, 7, 16, PEER_NONE },
	{ "newer only", 2, 7, 16, PEER_VERSION },
	{ "newer, and no oldest", 0, 2, 16, PEER_VERSION },
	{ "none", 0, 0, 16, PEER_VERSION },
	{ "upside down", 5, 1, 16, PEER_VERSION },
	{ "a short boot id", 1, 1, 15, PEER_MESSAGE },
	{ "no boot id", 1, 1, 0, PEER_MESSAGE },
};

static void versions_and_boots(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hellos); i++) {
		Peer__Hello hello = hello_of(1);
		uint8_t octets[128];
		struct world w;

		hello.version = hellos[i].newest;
		hello.oldest = hellos[i].oldest;
		hello.boot.len = hellos[i].boot;
		hello.features = UINT64_MAX;
		open_world(&w, true);
		put(&w, octets, greeting(octets, &hello));
		run(&w);
		printf("%s: %s\n", hellos[i].name, w.right.detail);
		assert_int_equal(w.right.hellos, !hellos[i].reason);
		assert_int_equal(w.right.reason, hellos[i].reason);
		if (!hellos[i].reason) {
			assert_int_equal(channel_version(w.right.c), 1);
			assert_int_equal(channel_features(w.right.c), PROTOCOL_FEATURES);
			assert_string_equal(channel_node(w.right.c), "one");
		}
		close_world(&w);
	}
}

/* The one that dialed hears the reason of the other one. */
static void the_other_side_says_why(void **state)
{
	struct world w;
	int fd;

	(void)state;
	fd = half_world(&w);
	w.right.refuse_hello = 1;
	assert_int_equal(channel_new(&w.left.c, &w.left_all, fd, identity_context(one), true, "two",
				     NULL), 0);
	run(&w);
	assert_int_equal(w.right.reason, PEER_NUMBER);
	assert_int_equal(w.left.reason, PEER_THERE);
	assert_string_equal(w.left.detail, "wrong-number: as the test wants it");
	close_world(&w);
}

static void nobody_waits_for_ever(void **state)
{
	(void)state;
	for (int secured = 0; secured < 2; secured++) {
		struct world w;

		quick_ms = 50;
		if (secured)
			open_world(&w, true);
		else
			w.raw_fd = half_world(&w);
		quick_ms = 0;
		while (!w.right.closed)
			assert_true(sd_event_run(w.event, 5000000) > 0);
		assert_int_equal(w.right.reason, PEER_TIMEOUT);
		printf("%s\n", w.right.detail);
		close_world(&w);
	}
}

/* A trailer that is not admitted is thrown away, its message is not, and what follows is read. */
static void trailers_that_are_not_wanted(void **state)
{
	static uint8_t octets[4 << 20], data[1 << 20];
	struct world w;
	size_t n;

	(void)state;
	memset(data, 'x', sizeof(data) - 1);
	n = conversation(octets, 3, (const char *)data);
	open_world(&w, true);
	w.right.admits = false;
	put(&w, octets, n);
	run(&w);
	assert_int_equal(w.right.messages, 3);
	assert_int_equal(w.right.asked, 3);
	assert_int_equal(w.right.thrown, 3);
	assert_int_equal(w.right.octets, 0);
	assert_int_equal(w.right.closed, 0);
	assert_false(w.right.wrong);
	close_world(&w);
}

static void freed_in_a_callback(void **state)
{
	(void)state;
	for (int where = 1; where < 4; where++) {
		uint8_t octets[1024];
		size_t n = conversation(octets, 3, "t");
		struct world w;

		open_world(&w, true);
		w.right.free_in = where;
		w.right.refuse_hello = where == 3;
		put(&w, octets, n);
		run(&w);
		assert_null(w.right.c);
		assert_int_equal(w.right.messages, where == 2);
		assert_int_equal(w.right.closed, where == 3);
		close_world(&w);
	}
}

static void the_other_end_goes(void **state)
{
	(void)state;
	for (size_t cut = 0; cut < 60; cut++) {
		uint8_t octets[1024];
		struct world w;

		size_t whole;

		conversation(octets, 1, "t");
		whole = sizeof(struct frame_header) + octets[8];
		open_world(&w, true);
		if (cut)
			put(&w, octets, cut);
		close_raw(&w);
		run(&w);
		assert_int_equal(w.right.closed, 1);
		/* a whole HELLO and nothing of the next frame: it has just gone away */
		assert_int_equal(w.right.reason, cut == whole ? PEER_NONE : PEER_CUT);
		close_world(&w);
	}
}

/* Who asks and does not read the answers is not read either: the queue does not grow. */
static void answers_are_bounded(void **state)
{
	static uint8_t octets[1 << 20], answer[4096];
	struct chunk chunk = { answer, sizeof(answer) };
	size_t n = conversation(octets, 1, "t");
	unsigned int queued = 0;
	struct world w;

	(void)state;
	open_world(&w, true);
	put(&w, octets, n);
	run(&w);
	for (uint32_t i = 0; i < 1024; i++)
		assert_int_equal(send_one(w.right.c, i, &chunk, 1), 0);
	n = conversation(octets, 2000, "t");
	for (int i = 0; i < 100; i++) {
		/* would break the protocol, once it is read */
		queued += tls_write(w.raw, octets, n) > 0;
		run(&w);
	}
	assert_true(queued < 100);
	assert_int_equal(w.right.closed, 0);
	assert_int_equal(w.right.messages, 1);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(big_trailers_go_in_pieces),
		cmocka_unit_test(limits_of_sending),
		cmocka_unit_test(one_octet_at_a_time),
		cmocka_unit_test(many_frames_in_one_read),
		cmocka_unit_test(what_breaks_a_rule_ends_the_channel),
		cmocka_unit_test(versions_and_boots),
		cmocka_unit_test(the_other_side_says_why),
		cmocka_unit_test(nobody_waits_for_ever),
		cmocka_unit_test(trailers_that_are_not_wanted),
		cmocka_unit_test(freed_in_a_callback),
		cmocka_unit_test(the_other_end_goes),
		cmocka_unit_test(answers_are_bounded),
	};

	return cmocka_run_group_tests(tests, make_identities, drop_identities);
}
