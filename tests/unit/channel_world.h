/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of a socket pair on one loop, for tests of channels: the right one is a channel of node
 * "two"; the left one is a channel of node "one", or bare TLS in the test's hands.
 */
#ifndef CHANNEL_WORLD_H
#define CHANNEL_WORLD_H

#include "identity_world.h"
#include "peer/channel.h"

static const uint8_t id[16] = "0123456789abcdef";
static unsigned int quick_ms; /* the right end's deadline, 0 the usual */

struct end {
	struct channel *c;
	int refuse_hello; /* what hello() returns */
	int free_in;      /* 1 hello, 2 message: frees the channel */
	bool admits;
	unsigned int hellos, messages, closed, asked, thrown;
	uint32_t node, last_epoch;
	int error;
	enum peer_reason reason;
	char detail[256];
	size_t octets; /* of trailers */
	bool wrong;
};

struct world {
	sd_event *event;
	struct channels left_all, right_all;
	struct end left, right;
	struct tls *raw; /* the left end, where there is no channel */
	int raw_fd;
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
	return e->refuse_hello ? channel_refuse(c, PEER_NUMBER, "as the test wants it") :
	       channel_data(c) ? channel_send_hello(c) :
				 0;
}

static bool on_admit(struct channel *c, enum message type, const Peer__Move *m, uint32_t size,
		     void *arg)
{
	struct end *e = arg;

	(void)c, (void)m, (void)size;
	e->asked++;
	e->wrong |= type != MSG_PREPARE;
	return e->admits;
}

static void on_message(struct channel *c, enum message type, const Peer__Move *m,
		       const uint8_t *trailer, uint32_t size, void *arg)
{
	struct end *e = arg;

	e->messages++;
	e->wrong |= m->epoch != e->last_epoch + 1 || type != MSG_PREPARE;
	e->last_epoch = m->epoch;
	e->thrown += !trailer;
	for (uint32_t i = 0; trailer && i < size; i += 4093)
		e->wrong |= trailer[i] != (uint8_t)(m->epoch + i);
	e->octets += trailer ? size : 0;
	if (e->free_in == 2) {
		e->c = NULL;
		channel_free(c);
	}
}

static void on_closed(struct channel *c, int error, void *arg)
{
	struct end *e = arg;
	Peer__Move m = PEER__MOVE__INIT;
	const char *detail;

	e->closed++;
	e->error = error;
	e->reason = channel_reason(c, &detail);
	snprintf(e->detail, sizeof(e->detail), "%s", detail);
	e->c = NULL;
	channel_send(c, MSG_ABORT, &m, NULL, 0); /* allowed, and without effect */
}

static const struct channel_ops ops = { on_hello, on_admit, on_message, on_closed };

static void run(struct world *w)
{
	for (int idle = 0; idle < 3;)
		idle = sd_event_run(w->event, 1000) > 0 ? 0 : idle + 1;
}

static Peer__Hello hello_of(uint32_t node)
{
	Peer__Hello hello = PEER__HELLO__INIT;

	hello.version = PROTOCOL_VERSION;
	hello.oldest = PROTOCOL_OLDEST;
	hello.node = node;
	hello.boot = (ProtobufCBinaryData){ 16, (uint8_t *)id };
	return hello;
}

/* The right end, and a socket for the left one. */
static int half_world(struct world *w)
{
	int fds[2];

	memset(w, 0, sizeof(*w));
	w->raw_fd = -1;
	assert_true(sd_event_new(&w->event) >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	w->left_all = (struct channels){ .event = w->event, .ops = &ops, .arg = &w->left,
					 .hello = hello_of(1) };
	w->right_all = (struct channels){ .event = w->event, .ops = &ops, .arg = &w->right,
					  .hello = hello_of(2) };
	w->right.admits = true;
	w->right_all.deadline_ms = quick_ms;
	assert_int_equal(channel_new(&w->right.c, &w->right_all, fds[1], identity_context(two),
				     false, "one", w), 0);
	return fds[0];
}

/* raw: bare TLS at the left end, its handshake done. */
static void open_world(struct world *w, bool raw)
{
	int fd = half_world(w), r = -EAGAIN;

	if (!raw) {
		assert_int_equal(channel_new(&w->left.c, &w->left_all, fd, identity_context(one),
					     true, "two", NULL), 0);
		run(w);
		assert_int_equal(w->left.node, 2);
		assert_int_equal(w->right.node, 1);
		return;
	}
	w->raw_fd = fd;
	assert_int_equal(tls_new(&w->raw, identity_context(one), fd, true, "two"), 0);
	for (int i = 0; i < 100 && r == -EAGAIN; i++) {
		r = tls_handshake(w->raw);
		run(w);
	}
	assert_int_equal(r, 0);
}

static void close_raw(struct world *w)
{
	tls_free(w->raw);
	w->raw = NULL;
	close_fd(&w->raw_fd);
}

static void close_world(struct world *w)
{
	close_raw(w);
	channel_free(w->left.c);
	channel_free(w->right.c);
	assert_int_equal(w->left_all.count + w->right_all.count, 0);
	assert_int_equal(w->left_all.memory + w->right_all.memory, 0);
	sd_event_unref(w->event);
}

/* All of it, as the other end reads. */
static void put(struct world *w, const uint8_t *octets, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = tls_write(w->raw, octets + at, size - at);

		assert_true(n > 0 || n == -EAGAIN);
		at += n > 0 ? (size_t)n : 0;
		if (at < size)
			run(w);
	}
}

#endif
