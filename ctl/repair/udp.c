// SPDX-License-Identifier: BSD-2-Clause
/*
 * UDP has no repair mode and needs none: a name, perhaps a peer, and what is queued unread. That
 * is peeked, with a peek offset, so that an abort leaves the queue as it was.
 */
#include <linux/tcp.h>
#include <string.h>
#include <sys/uio.h>
#include "base/util.h"
#include "repair/repair.h"
#include "repair/sockopt.h"

#define DATAGRAM_MAX 65536

int udp_freeze(int fd, struct repair_image *image)
{
	int r;

	if (image->frozen) /* a second time: from the start again */
		return opt_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, 0, image, "peek-off");
	r = opt_get(fd, SOL_SOCKET, SO_REUSEADDR, &image->reuseaddr, 4, image, "reuseaddr");
	r = r ? r : peek_off_take(fd, 0, image);
	image->frozen = !r;
	return r;
}

/* Anything behind what was peeked. A pending ICMP error is nothing that moves. */
int udp_arrived(int fd)
{
	int error;
	socklen_t size = sizeof(error);
	char c;

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
		return 1;
	return errno == EAGAIN ? 0 : -errno;
}

int udp_unfreeze(int fd, struct repair_image *image)
{
	return peek_off_give(fd, 0, image);
}

static int keep(struct datagram ***last, const uint8_t *data, size_t size,
		const struct sockaddr_storage *from)
{
	struct datagram *d = malloc(sizeof(*d) + size);
	int r;

	if (!d)
		return -ENOMEM;
	d->next = NULL;
	d->size = size;
	memcpy(d->data, data, size);
	r = addr_from_sockaddr(from, d->from, &d->port);
	if (r) {
		free(d);
		return r;
	}
	**last = d;
	*last = &d->next;
	return 0;
}

int udp_extract(int fd, struct repair_image *image)
{
	_cleanup_free_ uint8_t *buf = malloc(DATAGRAM_MAX);
	struct datagram **last = &image->datagrams;
	int r, error;

	repair_image_clear(image);
	image->inq = 0;
	if (!buf)
		return -ENOMEM;
	/* a pending ICMP error would come in place of the first datagram */
	r = opt_get(fd, SOL_SOCKET, SO_ERROR, &error, sizeof(error), image, "error");
	image->step = "peek";
	while (!r) {
		struct sockaddr_storage from;
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(fd, buf, DATAGRAM_MAX, MSG_PEEK | MSG_DONTWAIT,
				     (struct sockaddr *)&from, &size);

		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		r = keep(&last, buf, (size_t)n, &from);
		image->inq += (uint32_t)n;
		if (!r && image->inq > REPAIR_QUEUE_MAX)
			r = -EMSGSIZE;
	}
	return r;
}

/* Bound and, where it was, connected; a second call finds it so. */
int udp_restore(int fd, struct repair_image *image)
{
	const struct ferry_flow *f = &image->flow;
	struct sockaddr_storage ss, have;
	socklen_t size = sizeof(have);
	uint8_t addr[16];
	uint16_t port = 0;
	int r = opt_set_int(fd, SOL_SOCKET, SO_REUSEADDR, (int)image->reuseaddr, image,
			    "reuseaddr");

	if (r)
		return r;
	image->step = "bind";
	if (getsockname(fd, (struct sockaddr *)&have, &size) ||
	    addr_from_sockaddr(&have, addr, &port))
		return -errno;
	if (port)
		return port == f->dport && !memcmp(addr, f->daddr, 16) ? 0 : -EADDRINUSE;
	size = addr_to_sockaddr(f->daddr, f->dport, image->v6_socket, &ss);
	if (bind(fd, (struct sockaddr *)&ss, size))
		return -errno;
	image->step = "connect";
	size = addr_to_sockaddr(f->saddr, f->sport, image->v6_socket, &ss);
	if (image->connected && connect(fd, (struct sockaddr *)&ss, size))
		return -errno;
	return 0; /* its peek offset counts octets that libferry hands over: it starts at none */
}
