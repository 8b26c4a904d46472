// SPDX-License-Identifier: BSD-2-Clause
/*
 * SO_REUSEPORT set on a live listener lets a second one listen beside it, which makes their group.
 * Relied on: ctl/guard/guard.c (guard_take), ctl/guard/group.c (group_open: listen, then attach).
 * Kernel: net/core/sock_reuseport.c, reuseport_add_sock, reuseport_attach_prog;
 * net/ipv4/inet_connection_sock.c, inet_csk_bind_conflict.
 */
#include "reuseport.h"

/*
 * Until then the first has no group: a program, or its place in a sockarray, is EINVAL. A program
 * that is attached to the second one before it is bound gives that a group of its own: EADDRINUSE.
 */
static void beside(int family, int first, int second)
{
	struct name at = loopback(family, PORT);
	int old = listener(family, first), holder, array = sockarray();
	struct clients c;

	rule(bound(&at, second) == -EADDRINUSE, "a second listener binds beside one that is plain");
	rule(!set(old, SOL_SOCKET, SO_REUSEPORT, 1), "a live listener takes no SO_REUSEPORT");
	rule(attach(old, migrate_to(array, 0)) == -EINVAL, "without a group it takes a program");
	holder = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	need(!set(holder, SOL_SOCKET, SO_REUSEPORT, 1) && !attach(holder, migrate_to(array, 0)));
	rule(bind_to(holder, family, PORT) == -EADDRINUSE, "two groups share a port");
	close(holder);

	holder = bound(&at, second);
	rule(holder >= 0, "no second socket binds beside a listener with a late SO_REUSEPORT");
	rule(put(array, 1, old) == -EINVAL, "a listener without a group gets into a sockarray");
	rule(!listen(holder, 64), "no second socket listens beside a late listener");
	rule(!attach(old, migrate_to(array, 0)), "the group of a late listener takes no program");
	rule(!put(array, 0, old), "a late listener does not get into a sockarray");
	c = clients(family);
	rule(queued(old) == CLIENTS, "a late listener is not chosen by the program");
	rule(!put(array, 0, holder), "the second listener does not get into the sockarray");
	close(old);
	rule(moved() == CLIENTS && served(holder) == CLIENTS && !reset(&c),
	     "what a late listener had queued does not move when it closes");
	close(holder);
	close(array);
	new_namespace();
}

static void shown(int family)
{
	for (int first = 0; first <= ADDRESS; first += ADDRESS)
		for (int second = 0; second <= ADDRESS; second += ADDRESS)
			beside(family, first, GROUP | second);
}

int main(void)
{
	return for_each_family(shown);
}
