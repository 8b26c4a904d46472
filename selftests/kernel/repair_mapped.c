// SPDX-License-Identifier: BSD-2-Clause
/*
 * An IPv6 socket is restored with IPv4 addresses, and is IPv4 on the wire and to sock_diag.
 * Relied on: ctl/repair/restore.c (bind_and_connect), ctl/net/diag.c (on_socket).
 * Kernel: net/ipv6/tcp_ipv6.c, tcp_v6_connect; net/ipv4/inet_diag.c, inet_diag_find_one_icsk.
 */
#include "diag.h"

static struct sockaddr_in6 mapped(int port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };

	need(inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr) == 1);
	return a;
}

int main(void)
{
	struct sockaddr_in6 local = mapped(7001), remote = mapped(7002);
	int fd, netlink, v4, v6, other;

	begin();
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	netlink = diag_open();
	v4 = witness(AF_INET), v6 = witness(AF_INET6);
	need(!freeze(fd));
	rule(!bind(fd, (struct sockaddr *)&local, sizeof(local)) &&
		     !connect(fd, (struct sockaddr *)&remote, sizeof(remote)),
	     "an IPv6 socket in repair does not take IPv4 addresses: %s", strerror(errno));
	rule(diag(netlink, AF_INET, IPPROTO_TCP, 7001, 7002) == ESTABLISHED,
	     "sock_diag does not find it as IPv4");
	other = socket(AF_INET, SOCK_STREAM, 0);
	need(!freeze(other) && !bind_to(other, AF_INET, 7001));
	rule(connect_to(other, AF_INET, 7002) == -EADDRNOTAVAIL,
	     "an IPv4 socket is restored with the same tuple");
	need(!set_tcp(fd, TCP_REPAIR, TCP_REPAIR_OFF));
	rule(seen(v4, AF_INET, 7001, ANY) == 1 && !seen(v6, AF_INET6, 7001, ANY),
	     "its window probe is no IPv4 packet");
	return 0;
}
