// SPDX-License-Identifier: BSD-2-Clause
/*
 * A sock_diag socket answers for the namespace it was made in, whoever asks, without a right.
 * Relied on: ctl/net/diag.c (it is opened where the agent is, and needs no capability).
 * Kernel: net/core/sock_diag.c: sock_net of the netlink socket; net/ipv4/inet_diag.c.
 */
#include "diag.h"

static void no_rights(void)
{
	need(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
}

static void shown(int family)
{
	struct pair p = connected(family);
	int netlink = diag_open(), both[2], status, fd;
	int local = port_of(p.server), remote = port_of(p.client);

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, both));
	give(both[0], netlink);
	if (!fork()) {
		new_namespace();
		no_rights();
		fd = take(both[1]);
		rule(diag(fd, family, IPPROTO_TCP, local, remote) == ESTABLISHED,
		     "a received sock_diag socket does not answer for its maker's namespace");
		rule(diag(netlink, family, IPPROTO_TCP, local, remote) == ESTABLISHED,
		     "an inherited sock_diag socket does not answer for its maker's namespace");
		fd = diag_open();
		rule(diag(fd, family, IPPROTO_TCP, local, remote) == -ENOENT,
		     "a sock_diag socket of this namespace answers for another");
		exit(0);
	}
	need(wait(&status) > 0);
	if (status)
		exit(1);
	close(netlink);
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
