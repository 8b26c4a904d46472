// SPDX-License-Identifier: BSD-2-Clause
/*
 * The reader, see frame.h. A buffer holds the frame that is coming in, and what came behind it:
 *
 *     in           size of it                 room
 *     | header | body | trailer ... | header ...  |
 *
 * It grows with what has arrived, and is given back when a large frame has been dealt with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "peer/frame.h"

#define STEP 65536 /* what a read may bring */
#define KEEP_ROOM (1U << 20)

static int refuse(struct reader *r, enum peer_reason reason)
{
	r->reason = reason;
	return -EPROTO;
}

/* What is decoded counts as memory, too: a field of two octets becomes fifty. */
struct purse {
	size_t left;
};

static void *purse_alloc(void *purse, size_t size)
{
	struct purse *p = purse;

	if (size > p->left)
		return NULL;
	p->left -= size;
	return malloc(size);
}

static void purse_free(void *purse, void *p)
{
	(void)purse;
	free(p);
}

static void drop_move(struct reader *r)
{
	struct purse purse = {};
	ProtobufCAllocator a = { purse_alloc, purse_free, &purse };

	if (r->move)
		peer__move__free_unpacked(r->move, &a);
	r->move = NULL;
	*r->memory -= r->decoded;
	r->decoded = 0;
}

void reader_clear(struct reader *r)
{
	drop_move(r);
	free(r->in);
	*r->memory -= r->room;
	r->in = NULL;
	r->size = r->room = 0;
}

bool reader_partial(const struct reader *r)
{
	return r->size || r->skip;
}

/* Twice what has come in, or less where the frame ends before that. */
static size_t wanted(const struct reader *r)
{
	size_t want = r->size < STEP ? r->size + STEP : 2 * r->size;
	struct frame_header h;

	if (!r->move)
		return want;
	memcpy(&h, r->in, sizeof(h));
	return want < sizeof(h) + h.body + h.trailer + STEP ? want :
							      sizeof(h) + h.body + h.trailer + STEP;
}

uint8_t *reader_room(struct reader *r, size_t *room)
{
	size_t want = wanted(r);
	uint8_t *in;

	if (r->room - r->size >= STEP / 4) {
		*room = r->room - r->size;
		return r->in + r->size;
	}
	if (*r->memory - r->room + want > FRAME_MEMORY_MAX || !(in = realloc(r->in, want))) {
		refuse(r, PEER_MEMORY);
		return NULL;
	}
	*r->memory += want - r->room;
	r->in = in;
	r->room = want;
	*room = r->room - r->size;
	return r->in + r->size;
}

static int judge_header(struct reader *r, const struct frame_header *h)
{
	bool greeting = h->type == MSG_HELLO || h->type == MSG_BYE;

	if (h->magic != FRAME_MAGIC)
		return refuse(r, PEER_FRAME);
	if (h->version != FRAME_VERSION)
		return refuse(r, PEER_VERSION);
	if (!h->type || (h->type >= MSG_TYPES && h->type < MSG_OPTIONAL))
		return refuse(r, PEER_TYPE);
	if (r->greeted ? h->type == MSG_HELLO : !greeting)
		return refuse(r, PEER_ORDER);
	if (h->body > (greeting ? FRAME_HELLO_MAX : FRAME_BODY_MAX) ||
	    h->trailer > FRAME_TRAILER_MAX)
		return refuse(r, PEER_SIZE);
	return h->trailer && h->type != MSG_PREPARE ? refuse(r, PEER_TRAILER) : 0;
}

static int take_hello(struct reader *r, const struct frame_header *h, const uint8_t *body)
{
	struct purse purse = { FRAME_DECODED_MAX };
	ProtobufCAllocator a = { purse_alloc, purse_free, &purse };
	Peer__Hello *hello = peer__hello__unpack(&a, h->body, body);
	int e = hello && hello->boot.len == 16 ? 0 : refuse(r, PEER_MESSAGE);

	r->greeted = true;
	e = e ? e : r->ops->hello(hello, r->arg);
	if (hello)
		peer__hello__free_unpacked(hello, &a);
	return e;
}

static int take_bye(struct reader *r, const struct frame_header *h, const uint8_t *body)
{
	struct purse purse = { FRAME_DECODED_MAX };
	ProtobufCAllocator a = { purse_alloc, purse_free, &purse };
	Peer__Bye *bye = peer__bye__unpack(&a, h->body, body);
	int e = bye ? r->ops->bye(bye, r->arg) : refuse(r, PEER_MESSAGE);

	if (bye)
		peer__bye__free_unpacked(bye, &a);
	return e;
}

static int decode(struct reader *r, const struct frame_header *h, const uint8_t *body)
{
	struct purse purse = { FRAME_DECODED_MAX };
	ProtobufCAllocator a = { purse_alloc, purse_free, &purse };

	r->move = peer__move__unpack(&a, h->body, body);
	r->decoded = r->move ? FRAME_DECODED_MAX - purse.left : 0;
	*r->memory += r->decoded;
	if (!r->move || r->move->uuid.len != 16 || r->move->move_id.len != 16)
		return refuse(r, PEER_MESSAGE);
	return *r->memory > FRAME_MEMORY_MAX ? refuse(r, PEER_MEMORY) : 0;
}

/* The callback may end the reader's owner, but not free the reader. */
static int hand_over(struct reader *r, const struct frame_header *h, const uint8_t *trailer)
{
	int e = r->ops->message(h->type, r->move, trailer, h->trailer, r->arg);

	drop_move(r);
	return e;
}

/* A Move, whose header and body are in. *used: octets of it that are done with, 0 where it waits
 * for its trailer. */
static int take_move(struct reader *r, const struct frame_header *h, const uint8_t *body,
		     size_t rest, size_t *used)
{
	int e;

	*used = 0;
	if (!r->move) {
		e = decode(r, h, body);
		if (e)
			return e;
		if (h->trailer && !r->ops->admit(h->type, r->move, h->trailer, r->arg)) {
			r->skip = h->trailer;
			*used = sizeof(*h) + h->body;
			return hand_over(r, h, NULL);
		}
	}
	if (rest < h->trailer)
		return 0;
	*used = sizeof(*h) + h->body + h->trailer;
	return hand_over(r, h, body + h->body);
}

/* One frame, or a part of a trailer that is thrown away, at an offset of the buffer. */
static int step(struct reader *r, size_t at, size_t *used)
{
	size_t there = r->size - at;
	struct frame_header h;
	const uint8_t *body = r->in + at + sizeof(h);
	int e;

	*used = 0;
	if (r->skip) {
		*used = there < r->skip ? there : r->skip;
		r->skip -= (uint32_t)*used;
		return 0;
	}
	if (there < sizeof(h))
		return 0;
	memcpy(&h, r->in + at, sizeof(h));
	e = r->move ? 0 : judge_header(r, &h);
	if (e || there - sizeof(h) < h.body)
		return e;
	if (h.type != MSG_HELLO && h.type < MSG_OPTIONAL)
		return take_move(r, &h, body, there - sizeof(h) - h.body, used);
	*used = sizeof(h) + h.body;
	return h.type == MSG_HELLO ? take_hello(r, &h, body) :
	       h.type == MSG_BYE   ? take_bye(r, &h, body) :
				     0; /* of a later version, and optional */
}

int reader_take(struct reader *r, size_t size)
{
	size_t used, at = 0;
	int e;

	r->size += size;
	do {
		e = step(r, at, &used);
		at += used;
	} while (!e && used && at < r->size);
	if (e)
		return e;
	r->size -= at;
	if (at)
		memmove(r->in, r->in + at, r->size);
	if (!r->size && r->room > KEEP_ROOM) { /* of a large frame, as there may be none again */
		free(r->in);
		*r->memory -= r->room;
		r->in = NULL;
		r->room = 0;
	}
	return 0;
}

uint32_t hello_version(const Peer__Hello *ours, const Peer__Hello *theirs)
{
	uint32_t newest = ours->version < theirs->version ? ours->version : theirs->version;
	uint32_t our_oldest = ours->oldest ? ours->oldest : ours->version;
	uint32_t their_oldest = theirs->oldest ? theirs->oldest : theirs->version;

	return newest >= our_oldest && newest >= their_oldest ? newest : 0;
}

uint64_t hello_features(const Peer__Hello *ours, const Peer__Hello *theirs)
{
	return ours->features & theirs->features;
}
