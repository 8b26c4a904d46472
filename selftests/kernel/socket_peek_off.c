// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peek starts at SO_PEEK_OFF and moves it: of UDP in datagrams, of TCP since Linux 6.9.
 * Relied on: ctl/repair/udp.c (udp_extract), ctl/repair/sockopt.h (peek_off_take).
 * Kernel: net/core/sock.c, sk_set_peek_off; net/ipv4/udp.c, __udp_recvmsg; net/ipv4/tcp.c.
 */
#include "rule.h"

static void udp(int family)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	char c[8];

	need(!bind_to(fd, family, 0) && !connect_to(fd, family, port_of(fd)));
	need(send(fd, "one", 3, 0) == 3 && send(fd, "three", 5, 0) == 5);
	settle();
	rule(recv(fd, c, 8, MSG_PEEK) == 3 && recv(fd, c, 8, MSG_PEEK) == 3,
	     "a peek of UDP without SO_PEEK_OFF moves on");
	rule(!set(fd, SOL_SOCKET, SO_PEEK_OFF, 0) && recv(fd, c, 8, MSG_PEEK) == 3 &&
		     recv(fd, c, 8, MSG_PEEK) == 5,
	     "a peek of UDP with SO_PEEK_OFF does not move on");
	rule(recv(fd, c, 8, MSG_PEEK) == -1 && errno == EAGAIN, "a third datagram is peeked");
	rule(get(fd, SOL_SOCKET, SO_PEEK_OFF) == 8, "SO_PEEK_OFF does not count octets");
	rule(!set(fd, SOL_SOCKET, SO_PEEK_OFF, -1) && recv(fd, c, 8, 0) == 3,
	     "a peek has taken a datagram");
	close(fd);
}

static void shown(int family)
{
	struct pair p = connected(family);
	int r = set(p.server, SOL_SOCKET, SO_PEEK_OFF, 1);
	char c[8];

	udp(family);
	need(write(p.client, "ferry", 5) == 5 && until(ask(p.server, SIOCINQ) == 5));
	rule(!r || r == -EOPNOTSUPP, "SO_PEEK_OFF of TCP fails: %s", strerror(-r));
	rule(recv(p.server, c, 8, MSG_PEEK) == (r ? 5 : 4),
	     "a peek of TCP does not start at SO_PEEK_OFF");
	rule(r || !set(p.server, SOL_SOCKET, SO_PEEK_OFF, -1), "SO_PEEK_OFF cannot be taken back");
	rule(recv(p.server, c, 8, MSG_PEEK) == 5, "a peek without SO_PEEK_OFF is not whole");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
