/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A unit's image in messages: pure, no system call. The queues' octets are not copied into the
 * message: packing lists them as chunks of the trailer, unpacking takes them out of it.
 */
#ifndef MOVE_IMAGE_H
#define MOVE_IMAGE_H

#include "peer/channel.h"
#include "repair/repair.h"

void flow_pack(Peer__Flow *to, const struct ferry_flow *from);
/* 0 or -EPROTO. */
int flow_unpack(struct ferry_flow *to, const Peer__Flow *from);

/* Message parts that point into the images; freed by images_free(). */
struct packed_images {
	Peer__Socket *sockets;
	Peer__Socket **list;
	Peer__Flow *flows;
	struct chunk *chunks;
	unsigned int count, n_chunks;
};
int images_pack(struct packed_images *p, const struct repair_image *images, unsigned int count);
void images_free(struct packed_images *p);

/* How many octets of queues follow, by what is said of the sockets. */
uint64_t images_trailer(const Peer__Move *m);
/* Identity only (PREFLIGHT), or all (PREPARE, with its trailer). Checks that there are count of
 * them, every length against the trailer, and every value that the kernel would refuse. 0, -ENOMEM
 * or -EPROTO. */
int images_unpack(struct repair_image *images, unsigned int count, const Peer__Move *m,
		  const uint8_t *trailer, uint32_t size);

#endif
