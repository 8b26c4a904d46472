// SPDX-License-Identifier: BSD-2-Clause
/*
 * A sequence number is set before connect only (EPERM), and with a queue selected (EINVAL).
 * Relied on: ctl/repair/restore.c (set_sequence before bind_and_connect).
 * Kernel: net/ipv4/tcp.c, do_tcp_setsockopt and do_tcp_getsockopt: TCP_QUEUE_SEQ.
 */
#include "rule.h"

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);

	rule(set_tcp(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE) == -EPERM,
	     "a queue is selected without repair");
	need(!freeze(fd));
	rule(set_tcp(fd, TCP_QUEUE_SEQ, 5) == -EINVAL,
	     "TCP_QUEUE_SEQ with no queue selected is not EINVAL");
	rule(set_tcp(fd, TCP_REPAIR_QUEUE, 9) == -EINVAL, "there is a queue 9");
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE));
	rule(!set_tcp(fd, TCP_QUEUE_SEQ, 1000), "the send queue's number cannot be set");
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE));
	rule(!set_tcp(fd, TCP_QUEUE_SEQ, 2000), "the receive queue's number cannot be set");
	need(!bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	rule(get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ) == 2000, "rcv_nxt is not what was set");
	rule(set_tcp(fd, TCP_QUEUE_SEQ, 5) == -EPERM,
	     "TCP_QUEUE_SEQ of a connected socket is not EPERM");
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE));
	rule(get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ) == 1000, "write_seq is not what was set");
	need(send(fd, "ferry", 5, 0) == 5);
	rule(get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ) == 1005, "write_seq does not count a fill");
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_NO_QUEUE));
	rule(get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ) == -EINVAL,
	     "TCP_QUEUE_SEQ of no queue is not EINVAL");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
