// SPDX-License-Identifier: BSD-2-Clause
/*
 * A socket in repair binds to a port below 1024 with CAP_NET_BIND_SERVICE only.
 * Relied on: docs/man/ferryd.8 (the agent's rights), ctl/repair/restore.c (bind_and_connect).
 * Kernel: net/ipv4/af_inet.c, __inet_bind: inet_port_requires_bind_service.
 */
#include "rule.h"

/* 0 or -errno of the bind, by a process with these rights. */
static int bound(int family, uint32_t rights)
{
	int status;

	if (!fork()) {
		int fd = socket(family, SOCK_STREAM, 0);

		keep(rights);
		if (freeze(fd))
			_exit(255);
		_exit(-bind_to(fd, family, 443));
	}
	need(wait(&status) > 0 && WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void shown(int family)
{
	rule(bound(family, 1U << CAP_NET_ADMIN) == -EACCES,
	     "CAP_NET_ADMIN alone does not get EACCES for port 443 in repair");
	rule(!bound(family, 1U << CAP_NET_ADMIN | 1U << CAP_NET_BIND_SERVICE),
	     "CAP_NET_BIND_SERVICE does not bind to port 443 in repair");
}

int main(void)
{
	return for_each_family(shown);
}
