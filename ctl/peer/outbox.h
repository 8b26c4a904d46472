/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames on their way out: a bounded list of whole ones, each written as far as the socket takes
 * it. What is put in is copied, so that nobody waits for the peer.
 */
#ifndef PEER_OUTBOX_H
#define PEER_OUTBOX_H

#include "peer/frame.h"
#include "peer/tls.h"

#define OUTBOX_MAX (1024U << 20)

struct outbox {
	struct out_frame *first, *last;
	size_t queued; /* octets */
	bool blocked;  /* in the middle of a record: nothing else may be written */
};

struct chunk {
	const void *data;
	uint32_t size;
};
/* 0, -ENOBUFS (too much queued), -EMSGSIZE, -ENOMEM. */
int outbox_put(struct outbox *o, uint16_t type, const ProtobufCMessage *body,
	       const struct chunk *trailer, unsigned int chunks);
/* 0: all is written; else what tls_write() says. */
int outbox_flush(struct outbox *o, struct tls *t);
/* Between two frames, and free to write another one past the list. */
bool outbox_between(const struct outbox *o);
void outbox_clear(struct outbox *o);

#endif
