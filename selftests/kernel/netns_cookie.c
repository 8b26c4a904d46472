// SPDX-License-Identifier: BSD-2-Clause
/*
 * SO_NETNS_COOKIE of a socket that was received is that of the namespace it was made in.
 * Relied on: ctl/move/unit.c (an application's sockets must be of the agent's namespace).
 * Kernel: net/core/sock.c, sk_getsockopt: sock_net(sk)->net_cookie.
 */
#include "rule.h"

static uint64_t cookie(int fd)
{
	uint64_t value = 0;
	socklen_t size = sizeof(value);

	need(!getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &value, &size));
	return value;
}

static void shown(int family)
{
	int both[2], own = socket(family, SOCK_STREAM, 0), fd, status;
	uint64_t said;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, both));
	if (!fork()) {
		uint64_t before = cookie(own);

		new_namespace();
		fd = socket(family, SOCK_STREAM, 0);
		rule(cookie(fd) != before, "two namespaces have one cookie");
		rule(cookie(own) == before, "a socket's cookie changes with its process");
		before = cookie(fd);
		give(both[1], fd);
		need(write(both[1], &before, sizeof(before)) == sizeof(before));
		exit(0);
	}
	need(wait(&status) > 0);
	if (status)
		exit(1);
	fd = take(both[0]);
	need(read(both[0], &said, sizeof(said)) == sizeof(said));
	rule(cookie(fd) == said && said != cookie(own),
	     "a received socket's cookie is not that of its maker's namespace");
	close(fd);
	close(own);
}

int main(void)
{
	return for_each_family(shown);
}
