// SPDX-License-Identifier: BSD-2-Clause
/*
 * An MPTCP socket is refused TCP_REPAIR (ENOPROTOOPT).
 * Relied on: ctl/repair/check.c (the refusal mptcp).
 * Kernel: net/mptcp/sockopt.c, mptcp_setsockopt_sol_tcp.
 */
#include "rule.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM, IPPROTO_MPTCP);

	if (fd < 0) { /* a kernel without it has no such socket to move */
		rule(errno == EPROTONOSUPPORT || errno == ENOPROTOOPT || errno == EINVAL,
		     "an MPTCP socket fails in a strange way: %s", strerror(errno));
		return;
	}
	rule(get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_MPTCP, "SO_PROTOCOL does not say MPTCP");
	rule(freeze(fd) == -ENOPROTOOPT, "TCP_REPAIR of an MPTCP socket is not ENOPROTOOPT");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
