// SPDX-License-Identifier: BSD-2-Clause
/*
 * A socket in repair binds beside a listener; repair switched off leaves SO_REUSEADDR off.
 * Relied on: ctl/repair/restore.c (bind_and_connect), ctl/repair/tcp.c (tcp_set_back).
 * Kernel: net/ipv4/tcp.c, do_tcp_setsockopt: sk_reuse becomes SK_FORCE_REUSE, then SK_NO_REUSE.
 */
#include "rule.h"

static void shown(int family)
{
	int listener = socket(family, SOCK_STREAM, 0), fd = socket(family, SOCK_STREAM, 0);

	need(!bind_to(listener, family, 0) && !listen(listener, 1));
	rule(bind_to(fd, family, port_of(listener)) == -EADDRINUSE,
	     "a socket binds beside a listener without repair");
	need(!set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && get(fd, SOL_SOCKET, SO_REUSEADDR) == 1);
	rule(bind_to(fd, family, port_of(listener)) == -EADDRINUSE,
	     "SO_REUSEADDR on one side alone binds beside a listener");
	need(!freeze(fd));
	rule(!bind_to(fd, family, port_of(listener)),
	     "a socket in repair does not bind beside a listener");
	need(!set_tcp(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP));
	rule(get(fd, SOL_SOCKET, SO_REUSEADDR) == 0,
	     "SO_REUSEADDR is what it was before repair");
	rule(!set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && get(fd, SOL_SOCKET, SO_REUSEADDR) == 1,
	     "SO_REUSEADDR cannot be set back after repair");
	close(fd);
	close(listener);
}

int main(void)
{
	return for_each_family(shown);
}
