// SPDX-License-Identifier: BSD-2-Clause
/*
 * How much a send queue can be filled is bounded by SO_SNDBUF; SO_SNDBUFFORCE raises that.
 * Relied on: ctl/repair/restore.c (size_buffers).
 * Kernel: net/ipv4/tcp.c, tcp_sendmsg_locked; net/core/sock.c, sk_setsockopt.
 */
#include "rule.h"

#define QUEUE (8 << 20)

static int filled(int family, int queue, int option)
{
	static char data[65536];
	int fd = restored(family), size = 0;
	ssize_t n = 0;

	need(!set_tcp(fd, TCP_REPAIR_QUEUE, queue));
	need(!option || !set(fd, SOL_SOCKET, option, QUEUE));
	while (size < QUEUE && (n = send(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
		size += (int)n;
	rule(n > 0 || errno == EAGAIN, "a queue is full with %s, not EAGAIN", strerror(errno));
	close(fd);
	return size;
}

static void shown(int family)
{
	rule(filled(family, TCP_SEND_QUEUE, 0) < QUEUE,
	     "8 MiB fit a send queue of the default size");
	rule(filled(family, TCP_SEND_QUEUE, SO_SNDBUFFORCE) >= QUEUE,
	     "8 MiB do not fit a send queue that SO_SNDBUFFORCE has made for them");
	rule(filled(family, TCP_RECV_QUEUE, SO_RCVBUFFORCE) >= QUEUE,
	     "8 MiB do not fit a receive queue that SO_RCVBUFFORCE has made for them");
}

int main(void)
{
	return for_each_family(shown);
}
