// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_REPAIR_OPTIONS are set after connect and before the first octet is sent, and never read.
 * Relied on: ctl/repair/restore.c (restore_options, before the queues are filled).
 * Kernel: net/ipv4/tcp.c, do_tcp_setsockopt: TCP_ESTABLISHED and no bytes_sent, else EPERM.
 */
#include "rule.h"

static int set_options(int fd)
{
	const struct tcp_repair_opt o[] = { { OPT_MSS, 1400 },
					    { OPT_WINDOW, 7 | 7 << 16 },
					    { OPT_SACK, 0 },
					    { OPT_TIMESTAMP, 0 } };

	return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, o, sizeof(o)) ? -errno : 0;
}

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	struct pair p;

	rule(set_options(fd) == -EINVAL, "TCP_REPAIR_OPTIONS without repair is not EINVAL");
	need(!freeze(fd));
	rule(set_options(fd) == -EPERM, "TCP_REPAIR_OPTIONS before connect is not EPERM");
	close(fd);
	fd = restored(family);
	rule(!set_options(fd), "TCP_REPAIR_OPTIONS after connect fails");
	rule((info(fd).tcpi_options & 7) == 7 && info(fd).tcpi_snd_wscale == 7 &&
		     info(fd).tcpi_rcv_wscale == 7,
	     "TCP_REPAIR_OPTIONS are not taken over");
	rule(get(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS) == -ENOPROTOOPT,
	     "TCP_REPAIR_OPTIONS can be read");
	/* a filled queue is no octet sent */
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE) && send(fd, "ferry", 5, 0) == 5);
	rule(!set_options(fd), "TCP_REPAIR_OPTIONS after a queue was filled fails");
	close(fd);
	p = connected(family);
	need(!freeze(p.server));
	rule(!set_options(p.server), "TCP_REPAIR_OPTIONS of a socket that has sent nothing fails");
	need(write(p.client, "x", 1) == 1 && !freeze(p.client));
	rule(set_options(p.client) == -EPERM,
	     "TCP_REPAIR_OPTIONS after data was sent is not EPERM");
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
