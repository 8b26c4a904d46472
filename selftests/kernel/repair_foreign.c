// SPDX-License-Identifier: BSD-2-Clause
/*
 * An empty socket of another user and network namespace is filled with CAP_NET_ADMIN alone.
 * Relied on: ctl/move/destination.c (applications lend empty sockets), include/ferry/app.h.
 * Kernel: net/ipv4/tcp.c, tcp_can_repair_sock: ns_capable over the socket's namespace.
 */
#include "rule.h"

static void lend(int family, int through)
{
	char buf[8];
	int fd;

	new_namespace();
	need(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
	give(through, fd = socket(family, SOCK_STREAM, 0));
	rule(read(through, buf, 1) != 1 || /* the other has said why */
		     (recv(fd, buf, 8, MSG_DONTWAIT) == 5 && !memcmp(buf, "ferry", 5)),
	     "what was filled in is not read");
	exit(0);
}

static void fill(int family, int through)
{
	int fd = take(through);

	keep(1U << CAP_NET_ADMIN);
	rule(!freeze(fd) && !bind_to(fd, family, 7001) && !connect_to(fd, family, 7002) &&
		     !set_tcp(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) &&
		     send(fd, "ferry", 5, 0) == 5 && !set_tcp(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP),
	     "another's socket is not filled with CAP_NET_ADMIN: %s", strerror(errno));
	exit(write(through, "x", 1) != 1);
}

static void shown(int family)
{
	int both[2], status;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, both));
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			close(both[!i]); /* each ends when the other has */
			(i ? fill : lend)(family, both[i]);
		}
	need(!close(both[0]) && !close(both[1]));
	for (int i = 0; i < 2; i++)
		if (wait(&status) < 0 || status)
			exit(1);
}

int main(void)
{
	return for_each_family(shown);
}
