// SPDX-License-Identifier: BSD-2-Clause
/*
 * shutdown(SHUT_RDWR) moves what waits as close() does; listen() then joins the group again.
 * Relied on: ctl/guard/group.c (group_hand_over: two holders in turn).
 * Kernel: net/ipv4/tcp.c, tcp_disconnect; net/core/sock_reuseport.c, reuseport_stop_listen_sock,
 * reuseport_resurrect.
 */
#include "reuseport.h"

/* It has left its sockarray, and can be put there again once it listens. */
static void shown(int family)
{
	struct group g = group(family, 64);
	struct clients c;

	need(!attach(g.to, migrate_to(g.array, 0)) && !put(g.array, 1, g.from));
	need(!shutdown(g.from, SHUT_RDWR));
	rule(moved() == CLIENTS && queued(g.to) == CLIENTS, "after shutdown, %d of %d have moved",
	     moved(), CLIENTS);
	rule(put(g.array, 1, g.from) == -EINVAL, "after shutdown it gets into a sockarray");
	rule(served(g.to) == CLIENTS && !reset(&g.c), "after shutdown, some are lost");

	rule(!listen(g.from, 64), "what was shut down does not listen again: %s", strerror(errno));
	rule(!put(g.array, 0, g.from), "what listens again does not get into a sockarray");
	c = clients(family);
	rule(queued(g.from) == CLIENTS, "what listens again is not in its group: %d of %d come",
	     queued(g.from), CLIENTS);
	need(!put(g.array, 0, g.to) && !shutdown(g.from, SHUT_RDWR) && !listen(g.from, 64));
	rule(served(g.to) == CLIENTS && !reset(&c), "the second time, some are lost");

	c = clients(family);
	need(queued(g.to) == CLIENTS && !put(g.array, 0, g.from) && !close(g.to));
	rule(served(g.from) == CLIENTS && !reset(&c), "nothing moves to what listens again");
	g.to = g.from;
	part(&g);
}

int main(void)
{
	return for_each_family(shown);
}
