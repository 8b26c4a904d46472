// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_REPAIR without CAP_NET_ADMIN over the socket's network namespace is EPERM.
 * Relied on: docs/man/ferryd.8 (the agent's rights); applications need none.
 * Kernel: net/ipv4/tcp.c, tcp_can_repair_sock.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	int status;

	rule(!freeze(p.server), "root cannot set TCP_REPAIR");
	need(!set_tcp(p.server, TCP_REPAIR, TCP_REPAIR_OFF));
	if (!fork()) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		_exit(freeze(p.server) == -EPERM ? 0 : 1);
	}
	need(wait(&status) > 0 && status != 2 << 8);
	rule(!status, "TCP_REPAIR without CAP_NET_ADMIN is not EPERM");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
