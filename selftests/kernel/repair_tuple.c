// SPDX-License-Identifier: BSD-2-Clause
/*
 * A tuple that lives cannot be restored a second time: connect() in repair is EADDRNOTAVAIL.
 * Relied on: ctl/repair/restore.c (bind_and_connect: tuple-busy).
 * Kernel: net/ipv4/inet_hashtables.c, __inet_check_established.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	int local = port_of(p.server), remote = port_of(p.client);
	int fd = socket(family, SOCK_STREAM, 0);
	char c;

	need(!freeze(fd));
	rule(!bind_to(fd, family, local), "a socket in repair does not bind where a tuple lives");
	rule(connect_to(fd, family, remote) == -EADDRNOTAVAIL,
	     "connect() in repair to a tuple that lives is not EADDRNOTAVAIL");
	rule(info(fd).tcpi_state == CLOSED, "a socket that was refused its tuple is not CLOSED");
	need(write(p.client, "x", 1) == 1);
	rule(until(read(p.server, &c, 1) == 1), "the connection that lives has been harmed");
	close(fd);
	end(&p);
	fd = socket(family, SOCK_STREAM, 0);
	need(!freeze(fd) && !bind_to(fd, family, local));
	rule(!connect_to(fd, family, 7002), "another tuple of the port is refused too");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
