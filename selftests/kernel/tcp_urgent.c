// SPDX-License-Identifier: BSD-2-Clause
/*
 * SIOCINQ stops at an urgent octet, unless SO_OOBINLINE is set.
 * Relied on: ctl/repair/tcp.c (refuse_urgent).
 * Kernel: net/ipv4/tcp.c, tcp_inq.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);

	need(write(p.client, "ab", 2) == 2 && send(p.client, "!", 1, MSG_OOB) == 1 &&
	     write(p.client, "cd", 2) == 2);
	need(until(info(p.server).tcpi_bytes_received == 5));
	rule(ask(p.server, SIOCINQ) == 2, "SIOCINQ does not stop at an urgent octet");
	need(!set(p.server, SOL_SOCKET, SO_OOBINLINE, 1));
	rule(ask(p.server, SIOCINQ) == 5, "SIOCINQ stops at an urgent octet that is inline");
	need(!set(p.server, SOL_SOCKET, SO_OOBINLINE, 0));
	rule(ask(p.server, SIOCINQ) == 2, "SO_OOBINLINE cannot be taken back");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
