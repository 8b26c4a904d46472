// SPDX-License-Identifier: BSD-2-Clause
/*
 * A pending ICMP error comes before a datagram that waits, unless SO_ERROR is read first.
 * Relied on: ctl/repair/udp.c (udp_extract, udp_arrived).
 * Kernel: net/core/datagram.c, __skb_try_recv_datagram: sock_error.
 */
#include "rule.h"

/* A socket with an error and a datagram, both pending. */
static int with_both(int family)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	int peer = socket(family, SOCK_DGRAM, 0);

	need(!bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	need(send(fd, "to nobody", 9, 0) == 9);
	settle();
	need(!bind_to(peer, family, 7002) && !connect_to(peer, family, 7001));
	need(send(peer, "ferry", 5, 0) == 5 && !close(peer));
	settle();
	return fd;
}

static void shown(int family)
{
	int fd = with_both(family);
	char c[8];

	rule(recv(fd, c, 8, MSG_PEEK) == -1 && errno == ECONNREFUSED,
	     "an ICMP error does not come before the datagram");
	rule(recv(fd, c, 8, MSG_PEEK) == 5, "an ICMP error comes twice");
	close(fd);
	fd = with_both(family);
	rule(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED, "SO_ERROR does not say the ICMP error");
	rule(recv(fd, c, 8, MSG_PEEK) == 5, "an ICMP error comes after SO_ERROR was read");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
