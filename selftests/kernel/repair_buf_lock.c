// SPDX-License-Identifier: BSD-2-Clause
/*
 * A buffer whose size was set no longer grows by itself, until SO_BUF_LOCK is put back.
 * Relied on: ctl/repair/restore.c (repair_thaw), ctl/lib/arrive.c.
 * Kernel: net/core/sock.c, sk_setsockopt; net/ipv4/tcp_input.c, tcp_should_expand_sndbuf.
 */
#include "rule.h"

/* How much the send buffer has grown after a megabyte went through it. */
static int growth(int family, bool unlock)
{
	static char data[65536];
	struct pair p = connected(family);
	int size, left = 1 << 20;

	need(!set(p.server, SOL_SOCKET, SO_SNDBUFFORCE, 8192));
	need(get(p.server, SOL_SOCKET, SO_BUF_LOCK) == SOCK_SNDBUF_LOCK);
	need(!unlock || !set(p.server, SOL_SOCKET, SO_BUF_LOCK, 0));
	size = get(p.server, SOL_SOCKET, SO_SNDBUF);
	while (left > 0) {
		ssize_t n = send(p.server, data, sizeof(data), MSG_DONTWAIT);

		left -= n > 0 ? (int)n : 0;
		need(until(recv(p.client, data, sizeof(data), MSG_DONTWAIT) > 0 ||
			   !ask(p.server, SIOCOUTQ)));
	}
	size = get(p.server, SOL_SOCKET, SO_SNDBUF) - size;
	end(&p);
	return size;
}

static void shown(int family)
{
	rule(growth(family, false) == 0, "a buffer whose size was set grows");
	rule(growth(family, true) > 0, "a buffer does not grow after SO_BUF_LOCK was put back");
}

int main(void)
{
	return for_each_family(shown);
}
