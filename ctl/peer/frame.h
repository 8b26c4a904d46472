/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames: a header, a protobuf body, a raw trailer. What is here makes them out of octets and
 * judges them; it reads and writes no socket, and is fuzzed as it stands. The reader: put octets
 * where reader_room() says, tell reader_take() how many; it calls back for each message.
 * Invariant: nothing is allocated because a peer has announced it: memory is at most twice what has
 * come in (and one read), and a trailer is kept only where admit() has agreed, by its body.
 */
#ifndef PEER_FRAME_H
#define PEER_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "peer.pb-c.h"
#include "peer/reason.h"

#define PROTOCOL_VERSION 1 /* the newest that is spoken here */
#define PROTOCOL_OLDEST 1
#define PROTOCOL_FEATURES 0ULL

#define FRAME_HELLO_MAX 4096U /* of the body of HELLO and BYE */
#define FRAME_BODY_MAX (4U << 20)
#define FRAME_DECODED_MAX (16U << 20) /* of a body */
#define FRAME_TRAILER_MAX (512U << 20)
#define FRAME_MEMORY_MAX (1024U << 20) /* of what is coming in, over all readers that share it */

enum message {
	MSG_HELLO = 1,
	MSG_PREFLIGHT, /* origin: can it be restored there? */
	MSG_READY,     /* destination: yes, sockets are lent */
	MSG_PREPARE,   /* origin: here it is, frozen; the only one with a trailer */
	MSG_PREPARED,  /* destination: held, and would outlive me */
	MSG_FLIPPED,   /* origin: it is yours */
	MSG_DONE,      /* destination: LOCAL */
	MSG_ABORT,     /* origin: it stays with me */
	MSG_REFUSED,   /* destination: no, and why */
	MSG_QUERY,     /* destination in doubt: flipped or not? */
	MSG_LEARN,     /* owner or origin: this unit lives there, from this epoch on */
	MSG_FORGET,    /* owner: this unit has ended */
	MSG_KNOWS,     /* to a node that has connected: every unit in my tables, by uuid */
	MSG_TYPES,
	MSG_OPTIONAL = 0x8000, /* from here on: who does not know the type drops the message */
	MSG_BYE = MSG_OPTIONAL,
};

/* Little-endian. */
struct frame_header {
	uint32_t magic;   /* "FRRY" */
	uint16_t version; /* of this layout, not of the messages */
	uint16_t type;
	uint32_t body;
	uint32_t trailer;
};
#define FRAME_MAGIC 0x59525246U
#define FRAME_VERSION 1
_Static_assert(sizeof(struct frame_header) == 16, "frame header");

/* A callback that returns non-zero ends the reading: reader_take() returns it at once. */
struct reader_ops {
	int (*hello)(const Peer__Hello *hello, void *arg);
	/* Whether this message's trailer is kept. Where it is not, the message is handed over
	 * without (trailer NULL, its size) and the trailer is thrown away as it comes. */
	bool (*admit)(enum message type, const Peer__Move *m, uint32_t size, void *arg);
	int (*message)(enum message type, const Peer__Move *m, const uint8_t *trailer,
		       uint32_t size, void *arg);
	int (*bye)(const Peer__Bye *bye, void *arg);
};

struct reader {
	const struct reader_ops *ops;
	void *arg;
	size_t *memory; /* taken by all that share it */
	bool greeted;
	uint8_t *in;
	size_t size, room;
	uint32_t skip;    /* octets of a trailer that nobody wants */
	Peer__Move *move; /* decoded, and its trailer is still coming */
	size_t decoded;
	enum peer_reason reason; /* of -EPROTO */
};

void reader_clear(struct reader *r);
/* Where the next octets go, at least 16384 (a TLS record); NULL: no memory, and reason says so. */
uint8_t *reader_room(struct reader *r, size_t *room);
/* size octets have come in. 0, -EPROTO with a reason, or what a callback returned. */
int reader_take(struct reader *r, size_t size);
/* In the middle of a frame. */
bool reader_partial(const struct reader *r);

/* The newest version that both speak, 0 none; and the features of both. */
uint32_t hello_version(const Peer__Hello *ours, const Peer__Hello *theirs);
uint64_t hello_features(const Peer__Hello *ours, const Peer__Hello *theirs);

#endif
