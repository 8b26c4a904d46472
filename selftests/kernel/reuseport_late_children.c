// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connections from before a late SO_REUSEPORT forbid a second bind, unless all have SO_REUSEADDR.
 * Relied on: ctl/guard/holder.c (inherited: SO_REUSEADDR).
 * Kernel: net/ipv4/inet_connection_sock.c, inet_bind_conflict.
 */
#include "reuseport.h"

enum { WAITING, ACCEPTED, TIME_WAIT, STATES };
static const char *const names[STATES] = { "that waits", "that was accepted", "in TIME_WAIT" };

/* What a second bind is answered while a connection, which has its listener's options, is there. */
static int beside(int family, int state, int first, int second)
{
	struct name at = loopback(family, PORT);
	int old = listener(family, first), client = socket(family, SOCK_STREAM, 0), server = -1, fd;
	char octet;

	need(old >= 0 && !connect_to(client, family, PORT));
	settle();
	if (state != WAITING)
		need((server = accept(old, NULL, NULL)) >= 0);
	if (state == TIME_WAIT)
		need(!shutdown(server, SHUT_WR) && recv(client, &octet, 1, 0) == 0 &&
		     !close(client) && recv(server, &octet, 1, 0) == 0 && !close(server));
	need(!set(old, SOL_SOCKET, SO_REUSEPORT, 1));
	settle();
	fd = bound(&at, GROUP | second);
	close(fd);
	close(old);
	if (state != TIME_WAIT)
		close(client);
	if (state == ACCEPTED)
		close(server);
	new_namespace();
	return fd < 0 ? fd : 0;
}

static void shown(int family)
{
	for (int i = 0; i < 3 * STATES; i++) {
		int state = i / 3, first = i % 3 != 1 ? ADDRESS : PLAIN;
		int second = i % 3 ? ADDRESS : PLAIN, both = first && second;
		int err = beside(family, state, first, second);

		rule(err == (both ? 0 : -EADDRINUSE),
		     "beside a connection %s, SO_REUSEADDR of %s: bind says %s", names[state],
		     both ? "both" : "one", strerror(-err));
	}
}

int main(void)
{
	return for_each_family(shown);
}
