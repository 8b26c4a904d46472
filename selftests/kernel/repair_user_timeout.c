// SPDX-License-Identifier: BSD-2-Clause
/*
 * A user timeout kills a frozen socket that waits for an acknowledgement.
 * Relied on: ctl/repair/tcp.c (repair_freeze switches it off, tcp_set_back on again).
 * Kernel: net/ipv4/tcp_timer.c, tcp_write_timeout.
 */
#include "rule.h"

static struct pair waiting(int family, int timeout)
{
	struct pair p = connected(family);

	need(!set_tcp(p.server, TCP_USER_TIMEOUT, 100));
	deafen(p.client);
	need(write(p.server, "unacknowledged", 14) == 14 && !freeze(p.server));
	need(!set_tcp(p.server, TCP_USER_TIMEOUT, timeout));
	return p;
}

static void shown(int family)
{
	struct pair without = waiting(family, 0), with = waiting(family, 100);

	rule(until(info(with.server).tcpi_state == CLOSED),
	     "a frozen socket outlives a user timeout of 100 ms");
	rule(get(with.server, SOL_SOCKET, SO_ERROR) == ETIMEDOUT,
	     "a socket that its user timeout killed does not say ETIMEDOUT");
	rule(info(without.server).tcpi_state == ESTABLISHED,
	     "a frozen socket without user timeout dies too");
	end(&with);
	end(&without);
}

int main(void)
{
	return for_each_family(shown);
}
