// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sockets that no unit can take along, made on the spot: for tests that a refusal names its
 * reason and leaves the connections alone.
 *
 * Nothing is ever sent or received on them.
 *
 * Invariant: each is as real as it gets on one machine: the listener listens, the MPTCP socket is
 * connected if the kernel lets it be.
 */
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

#define CONNECT_WAIT_MS 1000

static int make(int family, int protocol)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);

	return fd < 0 ? -errno : fd;
}

static int listen_on(int fd, union address *a)
{
	socklen_t size = sizeof(*a);

	if (bind(fd, &a->sa, address_size(a)) || listen(fd, 1) || getsockname(fd, &a->sa, &size))
		return -errno;
	return 0;
}

/* Its other end is never accepted; connected is connected. */
static int make_mptcp(union address *a)
{
	int listener = make(a->sa.sa_family, IPPROTO_MPTCP), fd;
	struct pollfd wait;

	if (listener < 0)
		return listener;
	fd = make(a->sa.sa_family, IPPROTO_MPTCP);
	if (fd >= 0 && !listen_on(listener, a) && connect(fd, &a->sa, address_size(a)) &&
	    errno == EINPROGRESS) {
		wait = (struct pollfd){ .fd = fd, .events = POLLOUT };
		poll(&wait, 1, CONNECT_WAIT_MS);
	}
	/* The listener stays open: closing it would reset the pair. */
	return fd;
}

int extra_make(enum extra kind, int fd)
{
	union address a;
	socklen_t size = sizeof(a);
	int extra;

	if (getsockname(fd, &a.sa, &size))
		return -errno;
	address_set_port(&a, 0);
	switch (kind) {
	case EXTRA_MPTCP:
		return make_mptcp(&a);
	case EXTRA_LISTEN:
		extra = make(a.sa.sa_family, 0);
		if (extra >= 0 && listen_on(extra, &a)) {
			close(extra);
			return -EADDRNOTAVAIL;
		}
		return extra;
	default:
		return make(a.sa.sa_family, 0);
	}
}
