/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Framed messages between two agents, on the agent's loop. One connection carries the requests of
 * the side that opened it and their answers. A frame: struct frame_header, a protobuf body, a raw
 * trailer; sizes are checked before anything is allocated, and a peer that breaks a rule loses the
 * connection. The transport is plain TCP; a peer is known by its address.
 * Invariant: nothing waits: a send is queued (bounded), a silent peer is the caller's deadline.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>
#include "peer.pb-c.h"

#define CHANNEL_VERSION 1
#define CHANNEL_BODY_MAX (4U << 20)
#define CHANNEL_DECODED_MAX (16U << 20) /* of a body */
#define CHANNEL_TRAILER_MAX (512U << 20)
#define CHANNEL_QUEUE_MAX (1024U << 20)

enum message {
	MSG_HELLO = 1,
	MSG_PREFLIGHT, /* origin: can it be restored there? */
	MSG_READY,     /* destination: yes, sockets are lent */
	MSG_PREPARE,   /* origin: here it is, frozen */
	MSG_PREPARED,  /* destination: held, and would outlive me */
	MSG_FLIPPED,   /* origin: it is yours */
	MSG_DONE,      /* destination: LOCAL */
	MSG_ABORT,     /* origin: it stays with me */
	MSG_REFUSED,   /* destination: no, and why */
	MSG_QUERY,     /* destination in doubt: flipped or not? */
	MSG_LEARN,     /* owner or origin: this unit lives there, from this epoch on */
	MSG_FORGET,    /* owner: this unit has ended */
	MSG_KNOWS,     /* to a node that has connected: every unit in my tables, by uuid */
	MSG_TYPES
};

/* Little-endian. */
struct frame_header {
	uint32_t magic; /* "FRRY" */
	uint16_t version;
	uint16_t type;
	uint32_t body;
	uint32_t trailer;
};
#define FRAME_MAGIC 0x59525246U
_Static_assert(sizeof(struct frame_header) == 16, "frame header");

struct channel;
struct channel_ops {
	/* The peer said HELLO: it is this node, in this boot. Non-zero closes the channel. */
	int (*hello)(struct channel *c, const Peer__Hello *hello, void *arg);
	void (*message)(struct channel *c, enum message type, const Peer__Move *m,
			const uint8_t *trailer, uint32_t size, void *arg);
	/* Closed, for this reason (-errno); c is freed when the callback returns. */
	void (*closed)(struct channel *c, int reason, void *arg);
};

/* Takes the connected (or connecting) socket over. 0 or -errno. */
int channel_new(struct channel **ret, sd_event *event, int fd, const struct channel_ops *ops,
		void *arg);
void channel_free(struct channel *c);
int channel_send_hello(struct channel *c, uint32_t node, const uint8_t boot[16]);
/* Chunks of the trailer are copied. 0, -ENOBUFS (too much queued), -EMSGSIZE. */
struct chunk {
	const void *data;
	uint32_t size;
};
int channel_send(struct channel *c, enum message type, const Peer__Move *m,
		 const struct chunk *trailer, unsigned int chunks);
/* The caller's, for its own use. */
void channel_set_data(struct channel *c, void *data);
void *channel_data(const struct channel *c);

#endif
