// SPDX-License-Identifier: BSD-2-Clause
/*
 * A frozen socket gives an application EPERM on read and EINVAL on write; a peek needs a queue.
 * Relied on: ctl/move/origin.c (applications are quiesced first), ctl/repair/tcp.c (peek).
 * Kernel: net/ipv4/tcp.c, tcp_recvmsg_locked and tcp_sendmsg_locked.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	char buf[8];

	need(write(p.client, "ferry", 5) == 5 && until(ask(p.server, SIOCINQ) == 5));
	need(!freeze(p.server));
	rule(read(p.server, buf, 8) == -1 && errno == EPERM,
	     "read() of a frozen socket is not EPERM");
	rule(write(p.server, "x", 1) == -1 && errno == EINVAL,
	     "write() to a frozen socket is not EINVAL");
	rule(recv(p.server, buf, 8, MSG_PEEK) == -1 && errno == EINVAL,
	     "a peek in repair with no queue selected is not EINVAL");
	need(!set_tcp(p.server, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE));
	rule(recv(p.server, buf, 8, 0) == -1 && errno == EPERM,
	     "a recv() in repair that is no peek is not EPERM");
	rule(recv(p.server, buf, 8, MSG_PEEK) == 5 && !memcmp(buf, "ferry", 5),
	     "a peek of the receive queue does not give what is unread");
	need(!set_tcp(p.server, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP));
	rule(read(p.server, buf, 8) == 5, "what was peeked in repair is gone after it");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
