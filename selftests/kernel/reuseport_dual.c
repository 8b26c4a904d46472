// SPDX-License-Identifier: BSD-2-Clause
/*
 * Listeners at 0.0.0.0, [::] and [::] with IPV6_V6ONLY are three groups; [::] moves IPv4, too.
 * Relied on: ctl/guard/holder.c (a holder has its server's IPV6_V6ONLY).
 * Kernel: net/ipv4/inet_hashtables.c, inet_reuseport_add_sock: family and ipv6_only_sock.
 */
#include "reuseport.h"

enum { V4, V6ONLY, DUAL, KINDS };
static const char *const names[KINDS] = { "0.0.0.0", "[::] with V6ONLY", "[::]" };

static int every_address(int kind)
{
	int fd = socket(kind == V4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct name at = loopback(kind == V4 ? AF_INET : AF_INET6, PORT);

	if (kind == V4)
		at.v4.sin_addr.s_addr = htonl(INADDR_ANY);
	else
		at.v6.sin6_addr = in6addr_any;
	need(!set(fd, SOL_SOCKET, SO_REUSEPORT, 1));
	need(kind == V4 || !set(fd, IPPROTO_IPV6, IPV6_V6ONLY, kind == V6ONLY));
	need(!bind(fd, &at.sa, at.size) && !listen(fd, 64));
	return fd;
}

static void close_one(int from_kind, int to_kind, int family)
{
	int from = every_address(from_kind), to, array = sockarray();
	struct clients c = clients(family);
	int want = from_kind == to_kind ? CLIENTS : 0;

	need(queued(from) == CLIENTS);
	to = every_address(to_kind);
	need(!put(array, 0, to) && !attach(from, migrate_to(array, 0)));
	close(from);
	rule(moved() == want && served(to) == want && reset(&c) == CLIENTS - want,
	     "from %s to %s: %d of %d move", names[from_kind], names[to_kind], moved(), CLIENTS);
	close(to);
	close(array);
	new_namespace();
}

int main(void)
{
	begin();
	for (int from = 0; from < KINDS; from++)
		for (int to = 0; to < KINDS; to++)
			for (int v6 = from == V6ONLY; v6 <= (from != V4); v6++)
				close_one(from, to, v6 ? AF_INET6 : AF_INET);
	return 0;
}
