// SPDX-License-Identifier: BSD-2-Clause
/*
 * sock_diag finds a socket in repair, frozen or restored, by its tuple; a closed one it does not.
 * Relied on: ctl/net/diag.c, ctl/move/ending.c (a unit ends when its sockets have), adopt.c.
 * Kernel: net/ipv4/inet_diag.c, inet_diag_find_one_icsk; the tables of sockets know no repair.
 */
#include "diag.h"

static void shown(int family)
{
	struct pair p = connected(family);
	int fd = diag_open(), new = restored(family), other;
	int local = port_of(p.server), remote = port_of(p.client);

	rule(diag(fd, family, IPPROTO_TCP, local, remote) == ESTABLISHED, "no socket is found");
	need(!freeze(p.server));
	rule(diag(fd, family, IPPROTO_TCP, local, remote) == ESTABLISHED,
	     "a frozen socket is not found");
	rule(diag(fd, family, IPPROTO_TCP, 7001, 7002) == ESTABLISHED,
	     "a restored socket is not found in repair");
	need(!disconnect(new));
	rule(diag(fd, family, IPPROTO_TCP, 7001, 7002) == -ENOENT,
	     "a disconnected socket is found");
	/* not the tuple's own: where none matches, its listener is what is found */
	other = remote == 65535 ? 1024 : remote + 1;
	rule(diag(fd, family, IPPROTO_TCP, local, other) == 10 /* LISTEN */,
	     "the listener is not found for a tuple that has no socket");
	close(new);
	close(fd);
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
