/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between two agents over TLS, on the agent's loop. One connection carries the requests of
 * the side that dialed it and their answers. Frames and their limits: frame.h; who may be at the
 * other end: tls.h. A peer that breaks a rule loses the connection, for a reason (reason.h) that is
 * told to it where TLS stands.
 * Invariant: nothing waits: a send is queued (bounded), a handshake has a deadline, and what is not
 * let in yet is served after everything that is.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>
#include "peer/frame.h"
#include "peer/outbox.h"
#include "peer/tls.h"

#define HANDSHAKE_MS 3000 /* from the socket to HELLO */

struct channel;
struct channel_ops {
	/* The peer said HELLO: it is this node, in this boot. Non-zero closes the channel. */
	int (*hello)(struct channel *c, const Peer__Hello *hello, void *arg);
	/* See frame.h. */
	bool (*admit)(struct channel *c, enum message type, const Peer__Move *m, uint32_t size,
		      void *arg);
	void (*message)(struct channel *c, enum message type, const Peer__Move *m,
			const uint8_t *trailer, uint32_t size, void *arg);
	/* Closed by this -errno; -EPROTO: channel_reason() says why. c is freed when the callback
	 * returns. */
	void (*closed)(struct channel *c, int error, void *arg);
};

/* What an agent's channels share. Zero but for the first line. */
struct channels {
	sd_event *event;
	const struct channel_ops *ops;
	void *arg;
	Peer__Hello hello;     /* ours; by its owner, before the first channel */
	struct channel *first; /* the oldest */
	unsigned int count;
	size_t memory;            /* of what is coming in */
	unsigned int deadline_ms; /* 0: HANDSHAKE_MS */
};

/* Takes the connected (or connecting) socket over, where it succeeds; node: who has to be at the
 * other end; data: the caller's. A channel that dialed says HELLO by itself. 0 or -errno. */
int channel_new(struct channel **ret, struct channels *all, int fd, SSL_CTX *context, bool dialed,
		const char *node, void *data);
/* Without a callback. */
void channel_free(struct channel *c);
/* Answers a HELLO. */
int channel_send_hello(struct channel *c);
/* Chunks of the trailer are copied. 0, -ENOBUFS (too much queued), -EMSGSIZE. */
int channel_send(struct channel *c, enum message type, const Peer__Move *m,
		 const struct chunk *trailer, unsigned int chunks);
/* Ends it with this reason, closed() included; from within a callback: returns -EPROTO, which the
 * callback has to return. */
int channel_refuse(struct channel *c, enum peer_reason reason, const char *detail, ...)
	_printf_(3, 4);
enum peer_reason channel_reason(const struct channel *c, const char **detail);
/* The peer's HELLO was taken. */
bool channel_is_open(const struct channel *c);
/* What both sides have said in HELLO that they can. */
uint32_t channel_version(const struct channel *c);
uint64_t channel_features(const struct channel *c);
/* The node that the peer's certificate names, "" none. */
const char *channel_node(const struct channel *c);
void *channel_data(const struct channel *c);
/* How many accepted ones with this data (NULL: any) have said HELLO, or have not. oldest: of those,
 * may be NULL. */
unsigned int channels_accepted(const struct channels *all, const void *data, bool greeted,
			       struct channel **oldest);

#endif
