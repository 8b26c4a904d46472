// SPDX-License-Identifier: BSD-2-Clause
/*
 * Repair switched off by 0 sends a window probe that the peer answers; -1 sends nothing.
 * Relied on: ctl/repair/restore.c (repair_thaw, repair_probe).
 * Kernel: net/ipv4/tcp.c, do_tcp_setsockopt; net/ipv4/tcp_output.c, tcp_send_window_probe.
 */
#include "rule.h"

/* Packets of either side when repair is switched off so. */
static void thawed(int family, int off, int *server, int *client)
{
	struct pair p = connected(family);
	int raw = witness(family), again = witness(family);

	need(!freeze(p.server) && !set_tcp(p.server, TCP_REPAIR, off));
	*server = seen(raw, family, port_of(p.server), ANY);
	*client = seen(again, family, port_of(p.client), ANY);
	end(&p);
	close(raw);
	close(again);
}

static void shown(int family)
{
	int server, client;

	thawed(family, TCP_REPAIR_OFF_NO_WP, &server, &client);
	rule(!server && !client, "repair off by -1 sends a packet");
	thawed(family, TCP_REPAIR_OFF, &server, &client);
	rule(server == 1, "repair off by 0 sends %d packets, not one", server);
	rule(client == 1, "the peer answers a window probe with %d packets", client);
}

int main(void)
{
	return for_each_family(shown);
}
