// SPDX-License-Identifier: BSD-2-Clause
/*
 * Keepalive kills a frozen socket whose peer cannot answer, and sends the peer a RST.
 * Relied on: ctl/repair/tcp.c (repair_freeze switches keepalive off, tcp_set_back on again).
 * Kernel: net/ipv4/tcp_timer.c, tcp_keepalive_timer.
 */
#include "rule.h"

static void keepalive(int fd)
{
	need(!set_tcp(fd, TCP_KEEPIDLE, 1) && !set_tcp(fd, TCP_KEEPINTVL, 1) &&
	     !set_tcp(fd, TCP_KEEPCNT, 2) && !set(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
}

static void shown(int family)
{
	struct pair with = connected(family), without = connected(family);
	int from = port_of(with.server), raw = witness(family);

	keepalive(with.server);
	keepalive(without.server);
	need(!freeze(with.server) && !freeze(without.server));
	deafen(with.client);
	deafen(without.client);
	need(!set(without.server, SOL_SOCKET, SO_KEEPALIVE, 0));
	rule(until(info(with.server).tcpi_state == CLOSED),
	     "a frozen socket outlives keepalive 1/1/2");
	rule(seen(raw, family, from, RST) == 1, "keepalive kills without a RST");
	rule(info(without.server).tcpi_state == ESTABLISHED,
	     "a frozen socket without keepalive dies too");
	rule(!seen(raw, family, port_of(without.server), ANY),
	     "a frozen socket without keepalive sends");
	end(&with);
	end(&without);
	close(raw);
}

int main(void)
{
	return for_each_family(shown);
}
