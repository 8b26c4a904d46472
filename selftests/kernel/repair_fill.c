// SPDX-License-Identifier: BSD-2-Clause
/*
 * Queues are filled after connect, before it is EPIPE; a disconnect in repair empties them.
 * Relied on: ctl/repair/restore.c (the order of repair_restore, and its second time).
 * Kernel: net/ipv4/tcp.c, tcp_sendmsg_locked and tcp_disconnect.
 */
#include "rule.h"

static const int queues[] = { TCP_SEND_QUEUE, TCP_RECV_QUEUE };
static const unsigned long sizes[] = { SIOCOUTQ, SIOCINQ };

static void fill_both(int fd, int want)
{
	for (int i = 0; i < 2; i++) {
		need(!set_tcp(fd, TCP_REPAIR_QUEUE, queues[i]));
		rule((send(fd, "ferry", 5, 0) == 5 ? 0 : -errno) == want, "filling queue %d %s",
		     queues[i], want ? "before connect is not EPIPE" : "after connect fails");
	}
}

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);

	need(!freeze(fd) && !bind_to(fd, family, 7001));
	fill_both(fd, -EPIPE);
	need(!connect_to(fd, family, 7002));
	fill_both(fd, 0);
	for (int i = 0; i < 2; i++)
		rule(ask(fd, sizes[i]) == 5, "a filled queue %d is empty", queues[i]);
	need(!disconnect(fd));
	rule(!set_tcp(fd, TCP_QUEUE_SEQ, 1000),
	     "a sequence number cannot be set after a disconnect");
	need(!bind_to(fd, family, 7001) || port_of(fd) == 7001);
	rule(!connect_to(fd, family, 7002),
	     "a disconnected socket in repair does not connect again");
	for (int i = 0; i < 2; i++)
		rule(ask(fd, sizes[i]) == 0, "queue %d is full after a disconnect", queues[i]);
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
