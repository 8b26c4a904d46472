// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener forgets shutdown(); a socket that is none keeps it, for what it accepts later.
 * Relied on: ctl/guard/group.c (a holder is shut down and listens again), ctl/guard/store.c
 * (restore_group: an idle holder is not).
 * Kernel: net/ipv4/af_inet.c, inet_shutdown.
 */
#include "rule.h"

/* Octets that a server reads of its client's "ferry"; none where its connection is born shut down:
 * it has sent a FIN, and what comes then is answered by a RST. */
static ssize_t heard(int family, int listener)
{
	int client = socket(family, SOCK_STREAM, 0), server;
	char c[8];
	ssize_t n;

	need(!listen(listener, 8) && !connect_to(client, family, port_of(listener)));
	need(send(client, "ferry", 5, MSG_NOSIGNAL) == 5);
	server = accept(listener, NULL, NULL);
	need(server >= 0);
	n = recv(server, c, sizeof(c), 0);
	close(server);
	close(client);
	return n;
}

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);

	need(!bind_to(fd, family, 0));
	rule(heard(family, fd) == 5, "a listener that was not shut down hears nothing");
	need(!shutdown(fd, SHUT_RDWR) && get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
	rule(heard(family, fd) == 5, "shutdown() of a listener stays when it listens again");
	need(!shutdown(fd, SHUT_RDWR));
	rule(shutdown(fd, SHUT_RDWR) == -1 && errno == ENOTCONN,
	     "shutdown() of what does not listen is not ENOTCONN");
	rule(heard(family, fd) <= 0, "shutdown() of what does not listen does not stay");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
