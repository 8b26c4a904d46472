// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener at every address and one at an exact address share a port, and are two groups.
 * Relied on: ctl/guard/guard.c (is_elsewhere), ctl/guard/holder.c (its server's exact address).
 * Kernel: net/ipv4/inet_hashtables.c, inet_reuseport_add_sock: inet_rcv_saddr_equal.
 */
#include "reuseport.h"

static struct name every(int family)
{
	struct name n = loopback(family, PORT);

	if (family == AF_INET)
		n.v4.sin_addr.s_addr = htonl(INADDR_ANY);
	else
		n.v6.sin6_addr = in6addr_any;
	return n;
}

static void close_one(const struct name *from_at, const struct name *to_at, bool one_group)
{
	int family = from_at->sa.sa_family, want = one_group ? CLIENTS : 0;
	int from = listener_at(from_at, GROUP, 64), to, array = sockarray();
	struct clients c = clients(family);

	to = listener_at(to_at, GROUP, 64);
	rule(from >= 0 && to >= 0, "an exact address and every address do not share a port");
	need(!put(array, 0, to) && !attach(from, migrate_to(array, 0)) && queued(from) == CLIENTS);
	close(from);
	rule(moved() == want && not_moved() == CLIENTS - want, "of %d, %d move, %d are not moved",
	     CLIENTS, moved(), not_moved());
	rule(served(to) == want && reset(&c) == CLIENTS - want, "what moved is not what is served");
	close(to);
	close(array);
	new_namespace();
}

static void shown(int family)
{
	struct name exact = loopback(family, PORT), any = every(family);

	close_one(&any, &exact, false);
	close_one(&exact, &any, false);
	close_one(&any, &any, true);
	close_one(&exact, &exact, true);
}

int main(void)
{
	return for_each_family(shown);
}
