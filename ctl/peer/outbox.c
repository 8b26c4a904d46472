// SPDX-License-Identifier: BSD-2-Clause
/* The list of frames going out, see outbox.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "peer/outbox.h"

struct out_frame {
	struct out_frame *next;
	size_t size, done;
	uint8_t data[];
};

int outbox_put(struct outbox *o, uint16_t type, const ProtobufCMessage *body,
	       const struct chunk *trailer, unsigned int chunks)
{
	struct frame_header h = { FRAME_MAGIC, FRAME_VERSION, type, 0, 0 };
	size_t size = protobuf_c_message_get_packed_size(body), extra = 0;
	struct out_frame *f;
	uint8_t *p;

	for (unsigned int i = 0; i < chunks; i++)
		extra += trailer[i].size;
	if (size > FRAME_BODY_MAX || extra > FRAME_TRAILER_MAX)
		return -EMSGSIZE;
	if (o->queued + size + extra > OUTBOX_MAX)
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
	if (o->last)
		o->last->next = f;
	else
		o->first = f;
	o->last = f;
	o->queued += f->size;
	return 0;
}

static void drop_first(struct outbox *o)
{
	struct out_frame *f = o->first;

	o->first = f->next;
	if (!o->first)
		o->last = NULL;
	free(f);
}

int outbox_flush(struct outbox *o, struct tls *t)
{
	while (o->first) {
		struct out_frame *f = o->first;
		ssize_t n = tls_write(t, f->data + f->done, f->size - f->done);

		o->blocked = n == -EAGAIN;
		if (n < 0)
			return (int)n;
		f->done += (size_t)n;
		o->queued -= (size_t)n;
		if (f->done == f->size)
			drop_first(o);
	}
	return 0;
}

bool outbox_between(const struct outbox *o)
{
	return !o->blocked && !(o->first && o->first->done);
}

void outbox_clear(struct outbox *o)
{
	while (o->first)
		drop_first(o);
	o->queued = 0;
}
