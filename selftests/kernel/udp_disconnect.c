// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect(AF_UNSPEC) takes a UDP socket's peer away and leaves the port bound.
 * Relied on: ctl/move/origin.c (the application has to close a UDP socket that has left).
 * Kernel: net/ipv4/udp.c, __udp_disconnect: SOCK_BINDPORT_LOCK.
 */
#include "rule.h"

static void shown(int family)
{
	int fd = socket(family, SOCK_DGRAM, 0), other = socket(family, SOCK_DGRAM, 0);
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);

	need(!bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	rule(!disconnect(fd), "a UDP socket is not disconnected");
	rule(getpeername(fd, (struct sockaddr *)&ss, &size) == -1 && errno == ENOTCONN,
	     "a disconnected UDP socket has a peer");
	rule(port_of(fd) == 7001, "a disconnected UDP socket has no port");
	rule(bind_to(other, family, 7001) == -EADDRINUSE,
	     "the port of a disconnected UDP socket is free");
	close(fd);
	rule(!bind_to(other, family, 7001), "the port of a closed UDP socket is not free");
	close(other);
}

int main(void)
{
	return for_each_family(shown);
}
