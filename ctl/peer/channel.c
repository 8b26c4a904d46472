// SPDX-License-Identifier: BSD-2-Clause
/*
 * One connection: handshake, then frames both ways, see channel.h. Reads into the reader's buffer,
 * writes from the outbox.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/util.h"
#include "peer/channel.h"

#define READS 16 /* in a row, of one peer; each at most a TLS record */
#define ANSWERS_MAX (1U << 20)
#define PRIORITY_HANDSHAKE 10 /* after all that is let in already; sd-event: 0 is the usual */

struct channel {
	struct channels *all;
	struct channel *next;
	sd_event_source *source, *deadline;
	struct tls *tls;
	int fd;
	void *data;
	bool dialed;
	bool secured;   /* the TLS handshake is done */
	bool answering; /* the peer's HELLO was in before ours: the requests are its */
	bool open;      /* HELLO was taken */
	bool freed;     /* inside a callback: free when it returns */
	unsigned int busy;
	uint32_t read_wants, write_wants; /* beside EPOLLIN */
	struct reader in;
	struct outbox out;
	uint32_t version;
	uint64_t features;
	enum peer_reason reason;
	char detail[256];
};

static void release(struct channel *c)
{
	struct channel **at = &c->all->first;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->all->count--;
	sd_event_source_disable_unref(c->source);
	sd_event_source_disable_unref(c->deadline);
	tls_free(c->tls);
	close_fd(&c->fd);
	outbox_clear(&c->out);
	reader_clear(&c->in);
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

static void note(struct channel *c, enum peer_reason reason, const char *detail)
{
	if (c->reason)
		return; /* the first one is the cause */
	c->reason = reason;
	snprintf(c->detail, sizeof(c->detail), "%s", detail);
}

/* Why it ends, for the owner: whoever is not let in yet has not just gone away. */
static int cause(struct channel *c, int error)
{
	const char *detail;
	enum peer_reason reason = tls_reason(c->tls, &detail);

	if (reason)
		note(c, reason, detail);
	else if (c->in.reason)
		note(c, c->in.reason, "");
	else if (error == -ECONNRESET && reader_partial(&c->in))
		note(c, PEER_CUT, "in a frame");
	else if (!c->in.greeted && (c->secured || !c->dialed))
		note(c, PEER_CUT, "before its HELLO");
	return c->reason ? -EPROTO : error;
}

/* As far as the socket takes it now; not into the middle of another frame. */
static void say_bye(struct channel *c)
{
	struct frame_header h = { FRAME_MAGIC, FRAME_VERSION, MSG_BYE, 0, 0 };
	uint8_t data[sizeof(h) + FRAME_HELLO_MAX];
	Peer__Bye bye = PEER__BYE__INIT;

	if (!c->secured || !outbox_between(&c->out) || c->reason == PEER_THERE)
		return;
	bye.reason = (char *)peer_reason_id(c->reason);
	bye.detail = c->detail;
	h.body = (uint32_t)peer__bye__get_packed_size(&bye); /* both are short */
	memcpy(data, &h, sizeof(h));
	peer__bye__pack(&bye, data + sizeof(h));
	tls_write(c->tls, data, sizeof(h) + h.body);
}

static void closed(struct channel *c, int error)
{
	if (c->freed)
		return;
	error = cause(c, error);
	if (error == -EPROTO)
		say_bye(c);
	c->busy++;
	c->all->ops->closed(c, error, c->all->arg);
	c->busy--;
	c->freed = true;
}

int channel_refuse(struct channel *c, enum peer_reason reason, const char *detail, ...)
{
	char text[sizeof(c->detail)];
	va_list args;

	va_start(args, detail);
	vsnprintf(text, sizeof(text), detail, args);
	va_end(args);
	note(c, reason, text);
	if (c->busy)
		return -EPROTO;
	closed(c, -EPROTO);
	release(c);
	return -EPROTO;
}

/* -EAGAIN: more is queued than the socket takes now. */
static int flush(struct channel *c)
{
	int r = c->secured ? outbox_flush(&c->out, c->tls) : 0;

	c->write_wants = r == -EAGAIN ? tls_wants(c->tls) : 0;
	return r;
}

/* Who does not read our answers asks nothing more. The other way about there is no such rule, so
 * that two sides cannot wait for each other. */
static bool deaf(const struct channel *c)
{
	return c->answering && c->out.queued > ANSWERS_MAX;
}

static int want(struct channel *c)
{
	uint32_t events = !c->secured ? tls_wants(c->tls) :
					(deaf(c) ? 0 : EPOLLIN | c->read_wants) | c->write_wants;

	return sd_event_source_set_io_events(c->source, events);
}

static int receive(struct channel *c)
{
	c->read_wants = 0;
	for (unsigned int i = 0; i < READS && !deaf(c); i++) {
		size_t room;
		uint8_t *to = reader_room(&c->in, &room);
		ssize_t n = to ? tls_read(c->tls, to, room) : -EPROTO;
		int r;

		if (n == -EAGAIN) {
			c->read_wants = tls_wants(c->tls);
			return 0;
		}
		if (n <= 0)
			return n ? (int)n : -ECONNRESET;
		r = reader_take(&c->in, (size_t)n);
		if (r || c->freed)
			return r;
	}
	return 0; /* more is there: others first. OpenSSL keeps none of it: a record fits */
}

static int handshake(struct channel *c)
{
	int r = tls_handshake(c->tls);

	if (!r) {
		c->secured = true;
		sd_event_source_set_priority(c->source, SD_EVENT_PRIORITY_NORMAL);
	}
	return r;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	struct channel *c = arg;
	int r;

	(void)s, (void)fd;
	c->busy++;
	r = c->secured ? 0 : handshake(c);
	if (!r && events & (EPOLLIN | EPOLLHUP | EPOLLERR | c->read_wants))
		r = receive(c);
	r = r || c->freed ? r : flush(c);
	if (r && r != -EAGAIN)
		closed(c, r);
	else if (!c->freed)
		want(c);
	c->busy--;
	if (c->freed && !c->busy)
		release(c);
	return 0;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
	struct channel *c = arg;
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);

	(void)s, (void)usec;
	c->busy++;
	if (!getpeername(c->fd, (struct sockaddr *)&ss, &size)) /* else nobody was there at all */
		note(c, PEER_TIMEOUT,
		     c->secured ? "no HELLO after the TLS handshake" : "no TLS handshake");
	closed(c, -ETIMEDOUT);
	c->busy--;
	if (!c->busy)
		release(c);
	return 0;
}

static int on_hello(const Peer__Hello *hello, void *arg)
{
	struct channel *c = arg;
	const Peer__Hello *ours = &c->all->hello;
	uint32_t oldest = hello->oldest ? hello->oldest : hello->version;
	int r;

	c->deadline = sd_event_source_disable_unref(c->deadline);
	c->version = hello_version(ours, hello);
	c->features = hello_features(ours, hello);
	if (!c->version)
		return channel_refuse(c, PEER_VERSION, "node %u speaks %u to %u, node %u %u to %u",
				      hello->node, oldest, hello->version, ours->node,
				      ours->oldest ? ours->oldest : ours->version, ours->version);
	r = c->all->ops->hello(c, hello, c->all->arg);
	c->open = !r;
	return c->freed ? -ECANCELED : r;
}

static bool on_admit(enum message type, const Peer__Move *m, uint32_t size, void *arg)
{
	struct channel *c = arg;

	return c->all->ops->admit(c, type, m, size, c->all->arg);
}

static int on_message(enum message type, const Peer__Move *m, const uint8_t *trailer, uint32_t size,
		      void *arg)
{
	struct channel *c = arg;

	c->all->ops->message(c, type, m, trailer, size, c->all->arg);
	return c->freed ? -ECANCELED : 0;
}

static int on_bye(const Peer__Bye *bye, void *arg)
{
	struct channel *c = arg;
	char text[sizeof(c->detail)];

	snprintf(text, sizeof(text), "%.32s: %.160s", bye->reason, bye->detail);
	for (char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?'; /* a peer's words go to the log */
	return channel_refuse(c, PEER_THERE, "%s", text);
}

static const struct reader_ops reader_ops = { on_hello, on_admit, on_message, on_bye };

static int queue(struct channel *c, uint16_t type, const ProtobufCMessage *body,
		 const struct chunk *trailer, unsigned int chunks)
{
	int r = outbox_put(&c->out, type, body, trailer, chunks);

	if (r)
		return r;
	flush(c); /* what is wrong, on_io will find and report */
	return want(c);
}

static int add_sources(struct channel *c)
{
	struct channels *all = c->all;
	uint64_t ms = all->deadline_ms ? all->deadline_ms : HANDSHAKE_MS;
	int r = sd_event_add_io(all->event, &c->source, c->fd, EPOLLIN | EPOLLOUT, on_io, c);

	r = r < 0 ? r : sd_event_source_set_priority(c->source, PRIORITY_HANDSHAKE);
	r = r < 0 ? r :
		    sd_event_add_time_relative(all->event, &c->deadline, CLOCK_MONOTONIC, ms * 1000,
					       0, on_deadline, c);
	return r < 0 ? r : 0;
}

int channel_new(struct channel **ret, struct channels *all, int fd, SSL_CTX *context, bool dialed,
		const char *node, void *data)
{
	struct channel *c = calloc(1, sizeof(*c)), **last = &all->first;
	int r = c ? tls_new(&c->tls, context, fd, dialed, node) : -ENOMEM;

	if (r) {
		free(c);
		return r;
	}
	while (*last)
		last = &(*last)->next;
	*last = c;
	all->count++;
	c->all = all;
	c->fd = fd;
	c->dialed = dialed;
	c->data = data;
	c->in = (struct reader){ .ops = &reader_ops, .arg = c, .memory = &all->memory };
	r = add_sources(c);
	r = r || !dialed ? r : queue(c, MSG_HELLO, &all->hello.base, NULL, 0);
	if (r < 0) {
		c->fd = -1; /* the caller's still */
		release(c);
		return r;
	}
	*ret = c;
	return 0;
}

int channel_send_hello(struct channel *c)
{
	c->answering = c->in.greeted;
	return queue(c, MSG_HELLO, &c->all->hello.base, NULL, 0);
}

int channel_send(struct channel *c, enum message type, const Peer__Move *m,
		 const struct chunk *trailer, unsigned int chunks)
{
	return c->freed ? -ENOTCONN : queue(c, (uint16_t)type, &m->base, trailer, chunks);
}

enum peer_reason channel_reason(const struct channel *c, const char **detail)
{
	*detail = c->detail;
	return c->reason;
}

bool channel_is_open(const struct channel *c)
{
	return c->open;
}

uint32_t channel_version(const struct channel *c)
{
	return c->version;
}

uint64_t channel_features(const struct channel *c)
{
	return c->features;
}

const char *channel_node(const struct channel *c)
{
	return tls_node(c->tls);
}

void *channel_data(const struct channel *c)
{
	return c->data;
}

unsigned int channels_accepted(const struct channels *all, const void *data, bool greeted,
			       struct channel **oldest)
{
	unsigned int n = 0;

	for (struct channel *c = all->first; c; c = c->next) {
		if (c->dialed || c->in.greeted != greeted || (data && c->data != data))
			continue;
		if (!n++ && oldest)
			*oldest = c;
	}
	return n;
}
