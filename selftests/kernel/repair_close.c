// SPDX-License-Identifier: BSD-2-Clause
/*
 * The last close() of a socket in repair sends nothing; without repair it sends FIN or RST.
 * Relied on: ctl/move/destination.c (an agent that ends, or gives up, holds sockets in repair).
 * Kernel: net/ipv4/tcp.c, __tcp_close: tcp_disconnect in repair.
 */
#include "rule.h"

static int closed(int family, bool repair, bool unread, uint8_t flags)
{
	struct pair p = connected(family);
	int from = port_of(p.server), raw = witness(family), count;

	if (unread)
		need(write(p.client, "x", 1) == 1 && until(ask(p.client, SIOCOUTQ) == 0));
	if (repair)
		need(!freeze(p.server));
	seen(raw, family, from, ANY);
	close(p.server);
	count = seen(raw, family, from, flags);
	close(p.client);
	close(p.listener);
	close(raw);
	return count;
}

static void shown(int family)
{
	rule(closed(family, false, false, FIN) == 1, "close() without repair sends no FIN");
	rule(closed(family, false, true, RST) == 1,
	     "close() without repair and with unread data sends no RST");
	rule(!closed(family, true, false, ANY), "close() in repair sends a packet");
	rule(!closed(family, true, true, ANY),
	     "close() in repair sends a packet where data is unread");
}

int main(void)
{
	return for_each_family(shown);
}
