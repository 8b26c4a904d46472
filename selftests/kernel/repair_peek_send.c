// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peek of the send queue gives what is unacknowledged and what is unsent, in one piece.
 * Relied on: ctl/repair/tcp.c (extract_send).
 * Kernel: net/ipv4/tcp.c, tcp_peek_sndq.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	char buf[32];

	deafen(p.client);
	need(write(p.server, "unacknowledged", 14) == 14);
	need(write(p.server, " unsent", 7) == 7); /* by Nagle's rule, RFC 9293 3.7.4 */
	need(!freeze(p.server) && !set_tcp(p.server, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE));
	rule(ask(p.server, SIOCOUTQ) == 21, "SIOCOUTQ does not count what is unsent");
	rule(ask(p.server, SIOCOUTQNSD) == 7, "SIOCOUTQNSD does not count what is unsent alone");
	rule(recv(p.server, buf, sizeof(buf), MSG_PEEK) == 21 &&
		     !memcmp(buf, "unacknowledged unsent", 21),
	     "a peek of the send queue does not give what is in it");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
