// SPDX-License-Identifier: BSD-2-Clause
/*
 * Framing, see channel.h. Reads into one growing buffer, writes from a list of whole frames. The
 * first frame each way is HELLO; anything before it, of another version or over a limit, closes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/util.h"
#include "peer/channel.h"

#define READS 4 /* in a row, of one peer */
#define ANSWERS_MAX (1U << 20)
#define KEEP_ROOM (1U << 20)

struct frame {
	struct frame *next;
	size_t size, done;
	uint8_t data[];
};

struct channel {
	sd_event_source *source;
	int fd;
	const struct channel_ops *ops;
	void *arg, *data;
	bool greeted;   /* the peer's HELLO is in */
	bool answering; /* it was in before ours: the requests are the peer's */
	bool freed;     /* inside a callback: free when it returns */
	unsigned int busy;
	uint8_t *in;
	size_t in_size, in_room;
	struct frame *out, **out_last;
	size_t out_queued;
};

static void release(struct channel *c)
{
	sd_event_source_disable_unref(c->source);
	close_fd(&c->fd);
	while (c->out) {
		struct frame *f = c->out;

		c->out = f->next;
		free(f);
	}
	free(c->in);
	free(c);
}

void channel_free(struct channel *c)
{
	if (!c)
		return;
	if (c->busy)
		c->freed = true;
	else
		release(c);
}

static void closed(struct channel *c, int reason)
{
	if (c->freed)
		return;
	c->busy++;
	c->ops->closed(c, reason, c->arg);
	c->busy--;
	c->freed = true;
}

/* -EAGAIN: more is queued than the socket takes now. */
static int flush(struct channel *c)
{
	while (c->out) {
		struct frame *f = c->out;
		ssize_t n = send(c->fd, f->data + f->done, f->size - f->done,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == ENOTCONN ? -EAGAIN : -errno;
		f->done += (size_t)n;
		c->out_queued -= (size_t)n;
		if (f->done < f->size)
			continue;
		c->out = f->next;
		if (!c->out)
			c->out_last = &c->out;
		free(f);
	}
	return 0;
}

/* Who does not read our answers asks nothing more. The other way about there is no such rule, so
 * that two sides cannot wait for each other. */
static bool deaf(const struct channel *c)
{
	return c->answering && c->out_queued > ANSWERS_MAX;
}

static int want(struct channel *c, int flushed)
{
	uint32_t events = (deaf(c) ? 0 : EPOLLIN) | (flushed == -EAGAIN ? EPOLLOUT : 0);

	return sd_event_source_set_io_events(c->source, events);
}

/* A message of two octets a field grows fiftyfold when it is decoded: that is bounded, too. */
static void *decode_alloc(void *left, size_t size)
{
	if (size > *(size_t *)left)
		return NULL;
	*(size_t *)left -= size;
	return malloc(size);
}

static void decode_free(void *left, void *p)
{
	(void)left;
	free(p);
}

static int deliver(struct channel *c, const struct frame_header *h, const uint8_t *body)
{
	size_t left = CHANNEL_DECODED_MAX;
	ProtobufCAllocator a = { decode_alloc, decode_free, &left };

	if (h->type == MSG_HELLO) {
		Peer__Hello *hello = peer__hello__unpack(&a, h->body, body);
		bool good = hello && !c->greeted && hello->boot.len == 16 &&
			    hello->version == CHANNEL_VERSION;
		int r;

		c->greeted = true;
		r = good ? c->ops->hello(c, hello, c->arg) : -EPROTO;
		if (hello)
			peer__hello__free_unpacked(hello, &a);
		return r;
	}
	Peer__Move *m = c->greeted ? peer__move__unpack(&a, h->body, body) : NULL;
	bool whole = m && m->uuid.len == 16 && m->move_id.len == 16;

	if (whole)
		c->ops->message(c, h->type, m, body + h->body, h->trailer, c->arg);
	if (m)
		peer__move__free_unpacked(m, &a);
	return whole ? 0 : -EPROTO;
}

/* How many octets the frame at an offset of the buffer has; 0: its header is not whole. */
static int frame_size(const struct channel *c, size_t at, struct frame_header *h, size_t *size)
{
	*size = 0;
	if (c->in_size - at < sizeof(*h))
		return 0;
	memcpy(h, c->in + at, sizeof(*h));
	if (h->magic != FRAME_MAGIC || h->version != CHANNEL_VERSION || !h->type ||
	    h->type >= MSG_TYPES || h->body > CHANNEL_BODY_MAX || h->trailer > CHANNEL_TRAILER_MAX)
		return -EPROTO;
	*size = sizeof(*h) + h->body + h->trailer;
	return 0;
}

static int drain_frames(struct channel *c)
{
	struct frame_header h;
	size_t size, at = 0;
	int r;

	while (!(r = frame_size(c, at, &h, &size)) && size && c->in_size - at >= size) {
		r = deliver(c, &h, c->in + at + sizeof(h));
		if (r || c->freed)
			return r;
		at += size;
	}
	c->in_size -= at;
	if (at)
		memmove(c->in, c->in + at, c->in_size);
	if (!r && !c->in_size && c->in_room > KEEP_ROOM) {
		free(c->in); /* of a large frame, as there may be none again */
		c->in = NULL;
		c->in_room = 0;
	}
	return r;
}

static int make_room(struct channel *c)
{
	struct frame_header h;
	size_t need;
	int r = frame_size(c, 0, &h, &need);

	if (r)
		return r;
	if (need < c->in_size + 65536)
		need = c->in_size + 65536;
	if (need > c->in_room) {
		uint8_t *in = realloc(c->in, need);

		if (!in)
			return -ENOMEM;
		c->in = in;
		c->in_room = need;
	}
	return 0;
}

static int receive(struct channel *c)
{
	for (unsigned int i = 0; i < READS && !deaf(c); i++) {
		int r = make_room(c);
		ssize_t n;

		if (r)
			return r;
		n = recv(c->fd, c->in + c->in_size, c->in_room - c->in_size, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (!n)
			return -ECONNRESET;
		c->in_size += (size_t)n;
		r = drain_frames(c);
		if (r || c->freed)
			return r;
	}
	return 0; /* more is there: others first */
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	struct channel *c = arg;
	int r = 0, flushed;

	(void)s, (void)fd;
	c->busy++;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		r = receive(c);
	flushed = r || c->freed ? r : flush(c);
	if (flushed && flushed != -EAGAIN)
		closed(c, flushed);
	else if (!c->freed)
		want(c, flushed);
	c->busy--;
	if (c->freed && !c->busy)
		release(c);
	return 0;
}

int channel_new(struct channel **ret, sd_event *event, int fd, const struct channel_ops *ops,
		void *arg)
{
	struct channel *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->ops = ops;
	c->arg = arg;
	c->out_last = &c->out;
	r = sd_event_add_io(event, &c->source, fd, EPOLLIN | EPOLLOUT, on_io, c);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int queue(struct channel *c, uint16_t type, const ProtobufCMessage *body,
		 const struct chunk *trailer, unsigned int chunks)
{
	struct frame_header h = { FRAME_MAGIC, CHANNEL_VERSION, type, 0, 0 };
	size_t size = protobuf_c_message_get_packed_size(body), extra = 0;
	struct frame *f;
	uint8_t *p;
	int r;

	for (unsigned int i = 0; i < chunks; i++)
		extra += trailer[i].size;
	if (size > CHANNEL_BODY_MAX || extra > CHANNEL_TRAILER_MAX)
		return -EMSGSIZE;
	if (c->out_queued + size + extra > CHANNEL_QUEUE_MAX)
		return -ENOBUFS;
	f = malloc(sizeof(*f) + sizeof(h) + size + extra);
	if (!f)
		return -ENOMEM;
	h.body = (uint32_t)size;
	h.trailer = (uint32_t)extra;
	f->next = NULL;
	f->done = 0;
	f->size = sizeof(h) + size + extra;
	memcpy(f->data, &h, sizeof(h));
	p = f->data + sizeof(h) + protobuf_c_message_pack(body, f->data + sizeof(h));
	for (unsigned int i = 0; i < chunks; i++) {
		memcpy(p, trailer[i].data, trailer[i].size);
		p += trailer[i].size;
	}
	*c->out_last = f;
	c->out_last = &f->next;
	c->out_queued += f->size;
	r = flush(c);
	return r && r != -EAGAIN ? 0 /* on_io will find and report it */ : want(c, r);
}

int channel_send_hello(struct channel *c, uint32_t node, const uint8_t boot[16])
{
	Peer__Hello hello = PEER__HELLO__INIT;

	hello.version = CHANNEL_VERSION;
	hello.node = node;
	hello.boot.data = (uint8_t *)boot;
	hello.boot.len = 16;
	c->answering = c->greeted;
	return queue(c, MSG_HELLO, &hello.base, NULL, 0);
}

int channel_send(struct channel *c, enum message type, const Peer__Move *m,
		 const struct chunk *trailer, unsigned int chunks)
{
	return c->freed ? -ENOTCONN : queue(c, (uint16_t)type, &m->base, trailer, chunks);
}

void channel_set_data(struct channel *c, void *data)
{
	c->data = data;
}

void *channel_data(const struct channel *c)
{
	return c->data;
}
