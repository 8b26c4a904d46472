/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between agents (ctl/peer/channel.h), two of them or one and a raw end over a socket
 * pair, on one loop: HELLO first and once, each broken frame ends that channel before anything is
 * allocated for it, frames come whole and in order however they are cut, and a channel may be
 * freed in any of its callbacks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "base/util.h"
#include "peer/channel.h"

static const uint8_t id[16] = "0123456789abcdef";

struct end {
	struct channel *c;
	bool answers;     /* says HELLO when it is greeted */
	int refuse_hello; /* what hello() returns */
	int free_in;      /* 1 hello, 2 message: frees the channel */
	unsigned int hellos, messages, closed;
	uint32_t node, last_epoch;
	int reason;
	size_t octets; /* of trailers */
	bool wrong;
};

static int on_hello(struct channel *c, const Peer__Hello *hello, void *arg)
{
	struct end *e = arg;

	e->hellos++;
	e->node = hello->node;
	if (e->free_in == 1) {
		e->c = NULL;
		channel_free(c);
		return 0;
	}
	return e->refuse_hello ? e->refuse_hello : e->answers ? channel_send_hello(c, 2, id) : 0;
}

static void on_message(struct channel *c, enum message type, const Peer__Move *m,
		       const uint8_t *trailer, uint32_t size, void *arg)
{
	struct end *e = arg;

	e->messages++;
	e->wrong |= m->epoch != e->last_epoch + 1 || type != MSG_PREPARE;
	e->last_epoch = m->epoch;
	for (uint32_t i = 0; i < size; i += 4093)
		e->wrong |= trailer[i] != (uint8_t)(m->epoch + i);
	e->octets += size;
	if (e->free_in == 2) {
		e->c = NULL;
		channel_free(c);
	}
}

static void on_closed(struct channel *c, int reason, void *arg)
{
	struct end *e = arg;
	Peer__Move m = PEER__MOVE__INIT;

	e->closed++;
	e->reason = reason;
	e->c = NULL;
	channel_send(c, MSG_ABORT, &m, NULL, 0); /* allowed, and without effect */
}

static const struct channel_ops ops = { on_hello, on_message, on_closed };

struct world {
	sd_event *event;
	struct end left, right;
	int raw; /* the left end, where there is no channel */
};

static void run(struct world *w)
{
	for (int idle = 0; idle < 3;)
		idle = sd_event_run(w->event, 1000) > 0 ? 0 : idle + 1;
}

static void open_world(struct world *w, bool raw)
{
	int fds[2];

	memset(w, 0, sizeof(*w));
	w->raw = -1;
	assert_true(sd_event_new(&w->event) >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	w->right.answers = true;
	assert_int_equal(channel_new(&w->right.c, w->event, fds[1], &ops, &w->right), 0);
	if (raw) {
		w->raw = fds[0];
		return;
	}
	assert_int_equal(channel_new(&w->left.c, w->event, fds[0], &ops, &w->left), 0);
	assert_int_equal(channel_send_hello(w->left.c, 1, id), 0);
	run(w);
	assert_int_equal(w->left.hellos, 1);
	assert_int_equal(w->left.node, 2);
	assert_int_equal(w->right.hellos, 1);
	assert_int_equal(w->right.node, 1);
}

static void close_world(struct world *w)
{
	channel_free(w->left.c);
	channel_free(w->right.c);
	close_fd(&w->raw);
	sd_event_unref(w->event);
}

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
	struct chunk chunks[CHANNEL_TRAILER_MAX / sizeof(data) + 1];
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
		Peer__Hello hello = PEER__HELLO__INIT;
		Peer__Move m = PEER__MOVE__INIT;
		struct frame_header h = { FRAME_MAGIC, CHANNEL_VERSION, i ? MSG_PREPARE : MSG_HELLO,
					  0, i ? (uint32_t)strlen(trailer) : 0 };

		hello.version = CHANNEL_VERSION, hello.node = 1;
		hello.boot.data = m.uuid.data = m.move_id.data = (uint8_t *)id;
		hello.boot.len = m.uuid.len = m.move_id.len = 16;
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
		assert_int_equal(write(w.raw, octets + i, 1), 1);
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
	size_t n = conversation(octets, 900, "t"), at = 0;
	struct world w;

	(void)state;
	open_world(&w, true);
	while (at < n) {
		ssize_t r = write(w.raw, octets + at, n - at);

		assert_true(r > 0 || errno == EAGAIN);
		at += r > 0 ? (size_t)r : 0;
		run(&w);
	}
	assert_int_equal(w.right.messages, 900);
	assert_false(w.right.wrong);
	close_world(&w);
}

static const struct {
	const char *name;
	int frame;       /* of the conversation */
	size_t at, size; /* what is overwritten in its header */
	uint64_t value;
} breaks[] = {
	{ "another magic", 0, 0, 4, 1 },
	{ "another version", 0, 4, 2, 2 },
	{ "no type", 1, 6, 2, 0 },
	{ "type beyond the last", 1, 6, 2, MSG_TYPES },
	{ "type 65535", 1, 6, 2, 65535 },
	{ "body over the limit", 1, 8, 4, CHANNEL_BODY_MAX + 1 },
	{ "body of 4 GB", 1, 8, 4, UINT32_MAX },
	{ "trailer over the limit", 1, 12, 4, CHANNEL_TRAILER_MAX + 1 },
	{ "trailer of 4 GB", 1, 12, 4, UINT32_MAX },
	{ "a move before HELLO", 0, 6, 2, MSG_PREPARE },
	{ "HELLO twice", 1, 6, 2, MSG_HELLO },
	{ "body cut: no uuid", 1, 8, 4, 4 },
	{ "body cut in a field", 1, 8, 4, 19 },
	{ "no body", 1, 8, 4, 0 },
};

static void what_breaks_a_rule_ends_the_channel(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(breaks); i++) {
		uint8_t octets[1024];
		size_t n = conversation(octets, 2, ""), at = 0;
		struct world w;

		for (int k = 0; k < breaks[i].frame; k++)
			at += sizeof(struct frame_header) + octets[at + 8];
		memcpy(octets + at + breaks[i].at, &breaks[i].value, breaks[i].size);
		open_world(&w, true);
		assert_int_equal(write(w.raw, octets, n), n);
		run(&w);
		printf("%s: %u messages\n", breaks[i].name, w.right.messages);
		assert_int_equal(w.right.closed, 1);
		assert_int_equal(w.right.reason, -EPROTO);
		assert_int_equal(w.right.messages, 0);
		close_world(&w);
	}
}

static void hello_of_another_version_or_boot(void **state)
{
	(void)state;
	for (int lie = 0; lie < 2; lie++) {
		struct frame_header h = { FRAME_MAGIC, CHANNEL_VERSION, MSG_HELLO, 0, 0 };
		Peer__Hello hello = PEER__HELLO__INIT;
		uint8_t octets[128];
		struct world w;

		hello.version = lie ? CHANNEL_VERSION : CHANNEL_VERSION + 1;
		hello.node = 1;
		hello.boot.data = (uint8_t *)id;
		hello.boot.len = lie ? 15 : 16;
		h.body = (uint32_t)peer__hello__pack(&hello, octets + sizeof(h));
		memcpy(octets, &h, sizeof(h));
		open_world(&w, true);
		assert_true(write(w.raw, octets, sizeof(h) + h.body) > 0);
		run(&w);
		assert_int_equal(w.right.hellos, 0);
		assert_int_equal(w.right.reason, -EPROTO);
		close_world(&w);
	}
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
		w.right.refuse_hello = where == 3 ? -EACCES : 0;
		assert_int_equal(write(w.raw, octets, n), n);
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

		conversation(octets, 1, "t");
		open_world(&w, true);
		assert_int_equal(write(w.raw, octets, cut), cut);
		close_fd(&w.raw);
		run(&w);
		assert_int_equal(w.right.closed, 1);
		assert_true(w.right.reason == -ECONNRESET || w.right.reason == -EPIPE);
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
	assert_int_equal(write(w.raw, octets, n), n);
	run(&w);
	for (uint32_t i = 0; i < 1024; i++)
		assert_int_equal(send_one(w.right.c, i, &chunk, 1), 0);
	n = conversation(octets, 2000, "t");
	for (int i = 0; i < 100; i++) {
		ssize_t r = write(w.raw, octets, n); /* would break the protocol, once it is read */

		queued += r > 0;
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
		cmocka_unit_test(hello_of_another_version_or_boot),
		cmocka_unit_test(freed_in_a_callback),
		cmocka_unit_test(the_other_end_goes),
		cmocka_unit_test(answers_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
