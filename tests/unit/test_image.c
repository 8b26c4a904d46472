// SPDX-License-Identifier: BSD-2-Clause
/*
 * A unit's image in messages (ctl/move/image.h): packed, serialized by protobuf, and back, equal
 * field by field; then each lie a peer could tell, which must be refused at the decode, before a
 * socket exists: lengths against the trailer, ranges (cases M1, B99), and 10^5 random mutations,
 * which must neither read past the message nor leak.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/util.h"
#include "move/image.h"

enum { TCP4, TCP6, MAPPED, UDP4, UDP6, COUNT };

static const char *const flows[COUNT] = {
	[TCP4] = "tcp 198.51.100.7:40000 > 203.0.113.10:443",
	[TCP6] = "tcp [2001:db8:c::7]:40000 > [2001:db8:1::10]:443",
	[MAPPED] = "tcp 198.51.100.7:40001 > 203.0.113.10:443",
	[UDP4] = "udp * > 203.0.113.10:444",
	[UDP6] = "udp [2001:db8:c::7]:40000 > [2001:db8:1::10]:444",
};

static uint8_t *octets(size_t size, uint8_t first)
{
	uint8_t *data = malloc(size + 1);

	assert_non_null(data);
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)(first + i);
	return data;
}

static struct datagram *datagram(size_t size, uint8_t first, const char *from)
{
	struct datagram *d = calloc(1, sizeof(*d) + size);

	assert_non_null(d);
	d->size = size;
	d->port = htons(40000);
	addr_parse(from, d->from);
	memset(d->data, first, size);
	return d;
}

static void make(struct repair_image images[COUNT])
{
	memset(images, 0, sizeof(images[0]) * COUNT);
	for (int i = 0; i < COUNT; i++) {
		struct repair_image *m = &images[i];

		assert_int_equal(flow_parse(flows[i], &m->flow), 0);
		memcpy(m->role, "0123456789abcd", 15), m->role[0] = (char)(0x41 + i);
		m->v6_socket = i == TCP6 || i == MAPPED || i == UDP6;
		m->connected = i != UDP4;
		m->sndbuf = 87040, m->rcvbuf = 131072, m->buf_lock = 3;
		m->keepalive = 1, m->user_timeout = 5000, m->nodelay = 1, m->reuseaddr = 1;
		m->peek_off = 1 + (uint32_t)i;
		if (m->flow.proto != IPPROTO_TCP)
			continue;
		m->rcv_nxt = 0xfffffff0U + (uint32_t)i;
		m->write_seq = 0x80000001U;
		m->mss = 1448, m->options = 7, m->snd_wscale = 14, m->rcv_wscale = 7;
		m->timestamp = 0xdeadbeef;
		m->usec = true;
		m->window = (struct tcp_repair_window){ 1, 2, 3, 4, 5 };
		m->inq = 1000 * (uint32_t)(i + 1);
		m->outq = 70000;
		m->unsent = 69999;
		m->recv = octets(m->inq, 1);
		m->send = octets(m->outq, 2);
	}
	images[UDP4].datagrams = datagram(1200, 0xaa, "198.51.100.7");
	images[UDP4].datagrams->next = datagram(0, 0, "198.51.100.8");
	images[UDP4].datagrams->next->next = datagram(1, 0xbb, "198.51.100.9");
	images[UDP4].inq = 1201;
	images[UDP6].datagrams = datagram(9000, 0xcc, "2001:db8:c::7");
	images[UDP6].inq = 9000;
}

static void clear(struct repair_image *images)
{
	for (int i = 0; i < COUNT; i++)
		repair_image_clear(&images[i]);
}

/* What goes over the wire: a serialized message, and the trailer. */
struct wire {
	uint8_t *body, *trailer;
	size_t body_size;
	uint32_t size;
};

static void serialize(struct wire *w, const struct repair_image *images)
{
	struct packed_images p;
	Peer__Move m = PEER__MOVE__INIT;
	uint8_t *at;

	memset(w, 0, sizeof(*w));
	assert_int_equal(images_pack(&p, images, COUNT), 0);
	m.uuid.data = m.move_id.data = (uint8_t *)"0123456789abcdef";
	m.uuid.len = m.move_id.len = 16;
	m.n_sockets = COUNT;
	m.sockets = p.list;
	w->body_size = peer__move__get_packed_size(&m);
	w->body = malloc(w->body_size);
	assert_int_equal(peer__move__pack(&m, w->body), w->body_size);
	for (unsigned int i = 0; i < p.n_chunks; i++)
		w->size += p.chunks[i].size;
	at = w->trailer = malloc(w->size);
	for (unsigned int i = 0; i < p.n_chunks; at += p.chunks[i++].size)
		memcpy(at, p.chunks[i].data, p.chunks[i].size);
	images_free(&p);
}

static void same(const struct repair_image *a, const struct repair_image *b)
{
	const struct datagram *d = a->datagrams, *e = b->datagrams;

	assert_memory_equal(&a->flow, &b->flow, sizeof(a->flow));
	assert_string_equal(a->role, b->role);
	assert_memory_equal(&a->window, &b->window, sizeof(a->window));
#define SAME(field) assert_int_equal(a->field, b->field)
	SAME(v6_socket), SAME(connected), SAME(rcv_nxt), SAME(write_seq), SAME(inq), SAME(outq);
	SAME(unsent), SAME(mss), SAME(options), SAME(snd_wscale), SAME(rcv_wscale);
	SAME(timestamp), SAME(usec), SAME(sndbuf), SAME(rcvbuf), SAME(buf_lock);
	SAME(keepalive), SAME(user_timeout), SAME(nodelay), SAME(reuseaddr), SAME(peek_off);
	if (a->flow.proto == IPPROTO_TCP) {
		assert_memory_equal(a->recv, b->recv, a->inq);
		assert_memory_equal(a->send, b->send, a->outq);
	}
	for (; d && e; d = d->next, e = e->next) {
		SAME(datagrams->size);
		assert_int_equal(d->port, e->port);
		assert_memory_equal(d->from, e->from, 16);
		assert_memory_equal(d->data, e->data, d->size);
	}
	assert_true(!d && !e);
}

static void there_and_back(void **state)
{
	struct repair_image images[COUNT], back[COUNT] = {};
	struct wire w;
	Peer__Move *m;

	(void)state;
	make(images);
	serialize(&w, images);
	m = peer__move__unpack(NULL, w.body_size, w.body);
	assert_non_null(m);
	assert_int_equal(images_trailer(m), w.size);
	assert_int_equal(images_unpack(back, COUNT, m, w.trailer, w.size), 0);
	for (int i = 0; i < COUNT; i++)
		same(&images[i], &back[i]);
	clear(back);
	/* identity only, as in PREFLIGHT: no queue, no datagram */
	memset(back, 0, sizeof(back));
	assert_int_equal(images_unpack(back, COUNT, m, NULL, 0), 0);
	/* of a move that has room for fewer: not one is written past its end */
	assert_int_equal(images_unpack(NULL, COUNT - 1, m, NULL, 0), -EPROTO);
	for (int i = 0; i < COUNT; i++) {
		assert_memory_equal(&images[i].flow, &back[i].flow, sizeof(back[i].flow));
		assert_true(!back[i].recv && !back[i].send && !back[i].datagrams);
	}
	peer__move__free_unpacked(m, NULL);
	clear(images);
	free(w.body);
	free(w.trailer);
}

#define SWAP32(v) (v = __builtin_bswap32(v))
#define LIES(X)                                                                                    \
	X("window scale 15 to send by (M1)", s->snd_wscale = 15)                                   \
	X("window scale 15 to receive by (M1)", s->rcv_wscale = 15)                                \
	X("window scale of 2^32 - 1", s->snd_wscale = UINT32_MAX)                                  \
	X("MSS 0", s->mss = 0)                                                                     \
	X("MSS 47 (B99)", s->mss = 47)                                                             \
	X("MSS 65536 (B99)", s->mss = 65536)                                                       \
	X("MSS byte-swapped (B99)", SWAP32(s->mss))                                                \
	X("inq one more", s->inq++)                                                                \
	X("inq one less", s->inq--)                                                                \
	X("inq 2^32 - 1", s->inq = UINT32_MAX)                                                     \
	X("inq over the limit", s->inq = REPAIR_QUEUE_MAX + 1)                                     \
	X("inq byte-swapped", SWAP32(s->inq))                                                      \
	X("outq one more", s->outq++)                                                              \
	X("outq 2^32 - 1", s->outq = UINT32_MAX)                                                   \
	X("outq byte-swapped", SWAP32(s->outq))                                                    \
	X("unsent more than outq", s->unsent = s->outq + 1)                                        \
	X("unsent byte-swapped", SWAP32(s->unsent))                                                \
	X("send buffer negative", s->sndbuf = 1U << 31)                                            \
	X("receive buffer negative", s->rcvbuf = UINT32_MAX)                                       \
	X("buffer locks that are none", s->buf_lock = 4)                                           \
	X("user timeout negative", s->user_timeout = 1U << 31)                                     \
	X("keepalive 2", s->keepalive = 2)                                                         \
	X("nodelay byte-swapped", SWAP32(s->nodelay))                                              \
	X("reuse forced", s->reuseaddr = 2)                                                        \
	X("peek offset negative", s->peek_off = UINT32_MAX)                                        \
	X("role of 16 octets", s->role = (char *)"0123456789abcdef")                               \
	X("no flow", s->flow = NULL)                                                               \
	X("address of 4 octets", s->flow->remote.len = 4)                                          \
	X("address of no octets", s->flow->local.len = 0)                                          \
	X("another protocol", s->flow->protocol = 132)                                             \
	X("remote port of 17 bits", s->flow->remote_port = 65536 + 40000)                          \
	X("remote port 0", s->flow->remote_port = 0)                                               \
	X("local port 0", s->flow->local_port = 0)                                                 \
	X("port byte-swapped", SWAP32(s->flow->local_port))                                        \
	X("families mixed", s->flow->remote = m->sockets[o]->flow->remote)                         \
	X("datagrams on TCP", s->n_datagrams = m->sockets[UDP4]->n_datagrams;                      \
	  s->datagrams = m->sockets[UDP4]->datagrams)                                              \
	X("socket left out", m->n_sockets--)                                                       \
	X("trailer one octet short", size--)                                                       \
	X("trailer of one octet", size = 1)                                                        \
	X("trailer of none", size = 0)                                                             \
	X("trailer one octet long", size++)

#define LIES_UDP(X)                                                                                \
	X("datagram larger than what is left", d->size = size + 1)                                 \
	X("datagram of 2^32 - 1", d->size = UINT32_MAX)                                            \
	X("datagram one more", d->size++)                                                          \
	X("datagram one less", d->size--)                                                          \
	X("datagram from 4 octets", d->from.len = 4)                                               \
	X("datagram from port 65536", d->port = 65536)                                             \
	X("datagrams left out", s->n_datagrams = 0)                                                \
	X("connected the other way", s->connected = !s->connected)                                 \
	X("send queue on UDP", s->outq = s->unsent = 1)

static const char *const lies[] = {
#define X(name, ...) name,
	LIES(X) LIES_UDP(X)
#undef X
};

/* Changes message m, or the trailer's size; false: the lie cannot be told of this socket. */
static bool tell(unsigned int lie, Peer__Move *m, int i, uint32_t *trailer)
{
	Peer__Socket *s = m->sockets[i];
	bool udp = s->flow->protocol == IPPROTO_UDP;
	Peer__Datagram *d = udp ? s->datagrams[0] : NULL;
	int o = i == TCP4 || i == MAPPED ? TCP6 : TCP4;
	uint32_t size = *trailer;
	unsigned int n = 0;

#define X(name, ...)                                                                               \
	if (n++ == lie) {                                                                          \
		if (udp)                                                                           \
			return false;                                                              \
		__VA_ARGS__;                                                                       \
	}
	LIES(X)
#undef X
#define X(name, ...)                                                                               \
	if (n++ == lie) {                                                                          \
		if (!udp)                                                                          \
			return false;                                                              \
		__VA_ARGS__;                                                                       \
	}
	LIES_UDP(X)
#undef X
	*trailer = size;
	return true;
}

static void lies_are_refused(void **state)
{
	struct repair_image images[COUNT];
	struct wire w;

	(void)state;
	make(images);
	serialize(&w, images);
	w.trailer = realloc(w.trailer, w.size + 1); /* for a trailer that is too long */
	for (unsigned int lie = 0; lie < ARRAY_SIZE(lies); lie++) {
		for (int i = 0; i < COUNT; i++) {
			Peer__Move *m = peer__move__unpack(NULL, w.body_size, w.body), copy = *m;
			Peer__Socket was = *m->sockets[i];
			Peer__Flow flow = *was.flow;
			Peer__Datagram first = {};
			struct repair_image back[COUNT] = {};
			uint32_t size = w.size;

			if (was.n_datagrams)
				first = *was.datagrams[0];
			if (tell(lie, m, i, &size) &&
			    images_unpack(back, COUNT, m, w.trailer, size) != -EPROTO)
				fail_msg("%s: taken on %s", lies[lie], flows[i]);
			clear(back);
			*m = copy;
			*m->sockets[i] = was;
			*was.flow = flow;
			if (was.n_datagrams)
				*was.datagrams[0] = first;
			peer__move__free_unpacked(m, NULL);
		}
		printf("%s\n", lies[lie]);
	}
	clear(images);
	free(w.body);
	free(w.trailer);
}

static void flow_of_any_message(void **state)
{
	uint32_t seed = 99, taken = 0;
	struct repair_image images[COUNT];
	struct wire w;

	(void)state;
	make(images);
	serialize(&w, images);
	for (int i = 0; i < 100000; i++) {
		uint8_t *body = malloc(w.body_size), *trailer;
		struct repair_image back[16] = {};
		uint32_t size = w.size;
		Peer__Move *m;

		memcpy(body, w.body, w.body_size);
		for (unsigned int k = 0; k <= (seed >> 20) % 3; k++) {
			seed = seed * 1103515245 + 12345;
			body[(seed >> 12) % w.body_size] = (uint8_t)(seed >> 4);
		}
		if (i % 7 == 0)
			size = (seed >> 8) % (w.size + 1);
		trailer = i % 64 ? w.trailer : malloc(size + 1); /* so that ASan sees its end */
		if (trailer != w.trailer)
			memcpy(trailer, w.trailer, size);
		m = peer__move__unpack(NULL, w.body_size, body);
		if (m && m->n_sockets <= ARRAY_SIZE(back))
			taken += !images_unpack(back, (unsigned int)m->n_sockets, m, trailer,
						size);
		for (size_t k = 0; k < ARRAY_SIZE(back); k++)
			repair_image_clear(&back[k]);
		if (m)
			peer__move__free_unpacked(m, NULL);
		free(body);
		if (trailer != w.trailer)
			free(trailer);
	}
	printf("%u of 100000 taken\n", taken);
	clear(images);
	free(w.body);
	free(w.trailer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(lies_are_refused),
		cmocka_unit_test(flow_of_any_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
