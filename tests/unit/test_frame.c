/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reader of frames (ctl/peer/frame.h) as values, without a socket: what a later version may add
 * is let pass, memory follows what has come in and is given back, what several readers share is
 * bounded, and the newest common version is chosen.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/util.h"
#include "peer/frame.h"

static const uint8_t id[16] = "0123456789abcdef";

struct seen {
	unsigned int hellos, messages, byes;
	uint64_t features;
	size_t octets;
	bool refuses_trailers;
};

static int on_hello(const Peer__Hello *hello, void *arg)
{
	struct seen *s = arg;

	s->hellos++;
	s->features = hello->features;
	return 0;
}

static bool on_admit(enum message type, const Peer__Move *m, uint32_t size, void *arg)
{
	struct seen *s = arg;

	(void)type, (void)m, (void)size;
	return !s->refuses_trailers;
}

static int on_message(enum message type, const Peer__Move *m, const uint8_t *trailer, uint32_t size,
		      void *arg)
{
	struct seen *s = arg;

	(void)type, (void)m;
	s->messages++;
	s->octets += trailer ? size : 0;
	return 0;
}

static int on_bye(const Peer__Bye *bye, void *arg)
{
	struct seen *s = arg;

	(void)bye;
	s->byes++;
	return 0;
}

static const struct reader_ops ops = { on_hello, on_admit, on_message, on_bye };

static int feed(struct reader *r, const uint8_t *octets, size_t size, size_t piece)
{
	int e = 0;

	for (size_t at = 0, n; !e && at < size; at += n) {
		size_t room;
		uint8_t *to = reader_room(r, &room);

		if (!to)
			return -EPROTO;
		n = size - at < piece ? size - at : piece;
		n = n < room ? n : room;
		memcpy(to, octets + at, n);
		e = reader_take(r, n);
	}
	return e;
}

static size_t frame(uint8_t *to, uint16_t type, const void *body, size_t size, uint32_t trailer)
{
	struct frame_header h = { FRAME_MAGIC, FRAME_VERSION, type, (uint32_t)size, trailer };

	memcpy(to, &h, sizeof(h));
	memcpy(to + sizeof(h), body, size);
	return sizeof(h) + size;
}

static size_t hello_frame(uint8_t *to)
{
	Peer__Hello hello = PEER__HELLO__INIT;
	uint8_t body[64];

	hello.version = PROTOCOL_VERSION;
	hello.features = 5;
	hello.boot = (ProtobufCBinaryData){ 16, (uint8_t *)id };
	return frame(to, MSG_HELLO, body, peer__hello__pack(&hello, body), 0);
}

static size_t move_frame(uint8_t *to, uint16_t type, uint32_t trailer)
{
	Peer__Move m = PEER__MOVE__INIT;
	uint8_t body[64];

	m.uuid = m.move_id = (ProtobufCBinaryData){ 16, (uint8_t *)id };
	return frame(to, type, body, peer__move__pack(&m, body), trailer);
}

static void what_a_later_version_adds(void **state)
{
	/* fields 999 (varint) and 1000 (octets), which no message of ours has */
	static const uint8_t later[] = { 0xb8, 0x3e, 7, 0xc2, 0x3e, 2, 'h', 'i' };
	uint8_t octets[1024], body[128];
	Peer__Move m = PEER__MOVE__INIT;
	size_t memory = 0, n, k;
	struct seen s = {};
	struct reader r = { .ops = &ops, .arg = &s, .memory = &memory };

	(void)state;
	n = hello_frame(octets);
	m.uuid = m.move_id = (ProtobufCBinaryData){ 16, (uint8_t *)id };
	k = peer__move__pack(&m, body);
	memcpy(body + k, later, sizeof(later));
	n += frame(octets + n, MSG_FLIPPED, body, k + sizeof(later), 0);
	n += frame(octets + n, UINT16_MAX, "not protobuf \xff", 14, 0);
	n += frame(octets + n, MSG_OPTIONAL + 1, "", 0, 0);
	n += move_frame(octets + n, MSG_DONE, 0);
	assert_int_equal(feed(&r, octets, n, 1), 0);
	assert_int_equal(s.hellos, 1);
	assert_int_equal(s.features, 5);
	assert_int_equal(s.messages, 2);
	assert_false(reader_partial(&r));
	reader_clear(&r);
	assert_int_equal(memory, 0);
}

/* A trailer of 512 MiB is announced; a hundred octets of it come. */
static void an_announcement_takes_no_memory(void **state)
{
	static uint8_t octets[8 << 20];
	size_t n = hello_frame(octets), memory = 0;
	struct seen s = {};
	struct reader r = { .ops = &ops, .arg = &s, .memory = &memory };

	(void)state;
	n += move_frame(octets + n, MSG_PREPARE, FRAME_TRAILER_MAX);
	assert_int_equal(feed(&r, octets, n + 100, 4096), 0);
	assert_true(memory < 256 << 10);
	for (size_t come = n + 100; come < 100 << 20; come += sizeof(octets)) {
		assert_int_equal(feed(&r, octets, sizeof(octets), 16384), 0);
		assert_true(memory <= 2 * (come + sizeof(octets)) + 65536);
	}
	assert_int_equal(s.messages, 0);
	assert_true(reader_partial(&r));
	reader_clear(&r);
	assert_int_equal(memory, 0);
}

static void a_trailer_comes_or_goes(void **state)
{
	static uint8_t octets[3 << 20];
	const uint32_t trailer = 2 << 20;

	(void)state;
	for (size_t piece = 1000; piece < sizeof(octets); piece = piece * 3 + 1) {
		for (int refuses = 0; refuses < 2; refuses++) {
			size_t n = hello_frame(octets), memory = 0;
			struct seen s = { .refuses_trailers = refuses };
			struct reader r = { .ops = &ops, .arg = &s, .memory = &memory };

			n += move_frame(octets + n, MSG_PREPARE, trailer) + trailer;
			n += move_frame(octets + n, MSG_FLIPPED, 0);
			assert_int_equal(feed(&r, octets, n, piece), 0);
			assert_int_equal(s.messages, 2);
			assert_int_equal(s.octets, refuses ? 0 : trailer);
			assert_true(memory <= 1 << 20); /* a large buffer was given back */
			reader_clear(&r);
			assert_int_equal(memory, 0);
		}
	}
}

static void what_is_shared_is_bounded(void **state)
{
	static uint8_t octets[1 << 20];
	size_t n = hello_frame(octets), memory = FRAME_MEMORY_MAX - (4 << 20);
	struct seen s = {};
	struct reader r = { .ops = &ops, .arg = &s, .memory = &memory };
	int e = 0;

	(void)state;
	n += move_frame(octets + n, MSG_PREPARE, 64 << 20);
	for (int i = 0; i < 16 && !e; i++)
		e = feed(&r, octets, i ? sizeof(octets) : n, 16384);
	assert_int_equal(e, -EPROTO);
	assert_int_equal(r.reason, PEER_MEMORY);
	assert_true(memory <= FRAME_MEMORY_MAX);
	reader_clear(&r);
	assert_int_equal(memory, FRAME_MEMORY_MAX - (4 << 20));
}

static const struct {
	uint32_t our_oldest, our_newest, their_oldest, their_newest, version;
} ranges[] = {
	{ 1, 1, 1, 1, 1 }, { 1, 3, 1, 2, 2 }, { 1, 2, 1, 3, 2 }, { 2, 3, 3, 5, 3 },
	{ 2, 3, 1, 2, 2 }, { 2, 3, 4, 5, 0 }, { 4, 5, 2, 3, 0 }, { 3, 3, 0, 3, 3 },
	{ 3, 3, 0, 4, 0 }, { 0, 4, 1, 9, 4 }, { 0, 4, 0, 4, 4 }, { 1, 3, 0, 0, 0 },
};

static void the_newest_common_version(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		Peer__Hello ours = PEER__HELLO__INIT, theirs = PEER__HELLO__INIT;

		ours.oldest = ranges[i].our_oldest, ours.version = ranges[i].our_newest;
		theirs.oldest = ranges[i].their_oldest, theirs.version = ranges[i].their_newest;
		ours.features = 0x8000000000000005, theirs.features = 0x8000000000000006;
		printf("%u-%u and %u-%u: %u\n", ours.oldest, ours.version, theirs.oldest,
		       theirs.version, ranges[i].version);
		assert_int_equal(hello_version(&ours, &theirs), ranges[i].version);
		assert_int_equal(hello_version(&theirs, &ours), ranges[i].version);
		assert_int_equal(hello_features(&ours, &theirs), 0x8000000000000004);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_later_version_adds),
		cmocka_unit_test(an_announcement_takes_no_memory),
		cmocka_unit_test(a_trailer_comes_or_goes),
		cmocka_unit_test(what_is_shared_is_bounded),
		cmocka_unit_test(the_newest_common_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
