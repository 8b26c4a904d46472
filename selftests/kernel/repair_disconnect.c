// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect(AF_UNSPEC) in repair ends a connection for all its descriptors, without a packet.
 * Relied on: ctl/repair/tcp.c (repair_close: the application still holds its descriptor).
 * Kernel: net/ipv4/tcp.c, tcp_disconnect: no RST in repair, and ECONNABORTED is left to read.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	int agents = dup(p.server), local = port_of(p.server), remote = port_of(p.client);
	int raw = witness(family), fd = socket(family, SOCK_STREAM, 0);
	char c;

	/* unread data makes any other end a RST */
	need(write(p.client, "unread", 6) == 6 && until(ask(p.client, SIOCOUTQ) == 0));
	seen(raw, family, local, ANY);
	need(!freeze(agents));
	rule(!disconnect(agents), "a socket in repair is not disconnected");
	rule(info(p.server).tcpi_state == CLOSED, "the other descriptor is still connected");
	rule(!seen(raw, family, local, ANY), "a disconnect in repair sends a packet");
	rule(recv(p.client, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
	     "the peer of a socket that was disconnected in repair sees it");
	need(!freeze(fd) && !bind_to(fd, family, local));
	rule(!connect_to(fd, family, remote), "the tuple cannot be used again at once");
	rule(read(p.server, &c, 1) == -1 && errno == EPERM,
	     "the application of a disconnected socket does not read EPERM in repair");
	need(!set_tcp(agents, TCP_REPAIR, TCP_REPAIR_OFF));
	rule(read(p.server, &c, 1) == -1 && errno == ECONNABORTED,
	     "the application of a disconnected socket does not read ECONNABORTED after repair");
	rule(!seen(raw, family, local, ANY),
	     "repair off sends a packet where nothing is connected");
	close(fd);
	close(agents);
	end(&p);
	close(raw);
}

int main(void)
{
	return for_each_family(shown);
}
