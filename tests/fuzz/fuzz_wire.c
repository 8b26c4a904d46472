// SPDX-License-Identifier: BSD-2-Clause
/*
 * libFuzzer target: what another agent sends, in pieces, through the reader of frames and the
 * unpacking of images; memory is held against what has come. Seeds: tests/fuzz/seeds.py.
 */
#include "../../build/gen/peer.pb-c.c"
#include "../../ctl/base/util.c"
#include "../../ctl/move/image.c"
#include "../../ctl/peer/frame.c"
#define MUST(truth) ((truth) ? (void)0 : abort())

static int on_other(const void *message, void *arg) /* HELLO and BYE */
{
	return !message || !arg;
}

static bool on_admit(enum message type, const Peer__Move *m, uint32_t size, void *arg)
{
	return arg && type == MSG_PREPARE && images_trailer(m) == size;
}

static int on_message(enum message type, const Peer__Move *m, const uint8_t *trailer, uint32_t size,
		      void *arg)
{
	struct repair_image images[FERRY_UNIT_SOCKETS] = {}, *i = images;
	size_t n = trailer && m->n_sockets <= FERRY_UNIT_SOCKETS ? m->n_sockets : 0, queues = 0;
	const uint8_t *queued = type == MSG_PREPARE ? trailer : NULL;
	int r = n ? images_unpack(images, (unsigned int)n, m, queued, size) : 1;

	MUST(arg && m->uuid.len == 16 && (trailer || size) && (!size || type == MSG_PREPARE));
	for (; n--; free(i->recv), free(i++->send)) {
		MUST(r || i->unsent <= i->outq);
		queues += (i->recv ? i->inq : 0) + (i->send ? i->outq : 0);
		for (struct datagram *d; (d = i->datagrams); i->datagrams = d->next, free(d))
			queues += d->size;
	}
	MUST(r ? queues <= size : queues == size); /* all of it, and nothing twice */
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reader_ops ops = { (void *)on_other, on_admit, on_message, (void *)on_other };
	size_t memory = 0, piece = size ? data[0] + 1 : 1, room, n, at = 1;
	struct reader r = { .ops = &ops, .arg = &memory, .memory = &memory };
	int e = 0;

	for (; !e && at < size; at += n) {
		uint8_t *to = reader_room(&r, &room);

		n = size - at < piece ? size - at : piece;
		memcpy(to, data + at, n);
		e = reader_take(&r, n);
		MUST(room >= n && memory - r.decoded <= 2 * at + 2 * STEP);
	}
	reader_clear(&r);
	MUST(!memory && (!e || (e == -EPROTO && r.reason)));
	return 0;
}
