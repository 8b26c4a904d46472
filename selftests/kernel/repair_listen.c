// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener is refused TCP_REPAIR (EPERM); every state that is connected takes it.
 * Relied on: ctl/repair/check.c (only ESTABLISHED moves: the kernel does not refuse the others).
 * Kernel: net/ipv4/tcp.c, tcp_can_repair_sock.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	int fd = socket(family, SOCK_STREAM, 0);

	rule(set_tcp(p.listener, TCP_REPAIR, TCP_REPAIR_ON) == -EPERM,
	     "TCP_REPAIR of a listener is not EPERM");
	rule(!freeze(fd), "a socket that is not connected does not take TCP_REPAIR");
	rule(set_tcp(fd, TCP_REPAIR, 7) == -EINVAL, "TCP_REPAIR takes a 7");
	need(!shutdown(p.client, SHUT_WR) &&
	     until(info(p.server).tcpi_state == 8 /* CLOSE_WAIT */));
	rule(!freeze(p.server), "CLOSE_WAIT does not take TCP_REPAIR");
	need(until(info(p.client).tcpi_state == 5 /* FIN_WAIT2 */));
	rule(!freeze(p.client), "FIN_WAIT2 does not take TCP_REPAIR");
	close(fd);
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
