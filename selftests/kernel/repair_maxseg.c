// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_MAXSEG takes 88 to 32767; set before a connect in repair, it decides the segments' size.
 * Relied on: ctl/repair/restore.c (set_segment_size), ctl/repair/tcp.c (extract_options).
 * Kernel: net/ipv4/tcp.c, tcp_sock_set_maxseg; tcp_output.c, tcp_connect_init;
 *	net/ipv6/tcp_ipv6.c, tcp_v6_connect (1220 where nothing is told, IPv4: 536).
 */
#include "rule.h"

static int size_of_segments(int family, int told)
{
	const struct tcp_repair_opt o = { OPT_MSS, 1400 };
	int fd = socket(family, SOCK_STREAM, 0), size;

	need(!freeze(fd) && (!told || !set_tcp(fd, TCP_MAXSEG, told)));
	need(!bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	need(!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, &o, sizeof(o)));
	rule(get(fd, IPPROTO_TCP, TCP_MAXSEG) == 1400,
	     "in repair, TCP_MAXSEG does not read what the peer has said");
	size = (int)info(fd).tcpi_snd_mss;
	close(fd);
	return size;
}

static void shown(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	struct pair p = connected(family);

	rule(set_tcp(fd, TCP_MAXSEG, 87) == -EINVAL, "a TCP_MAXSEG of 87 is taken");
	rule(!set_tcp(fd, TCP_MAXSEG, 88), "a TCP_MAXSEG of 88 is not taken");
	rule(!set_tcp(fd, TCP_MAXSEG, 32767), "a TCP_MAXSEG of 32767 is not taken");
	rule(set_tcp(fd, TCP_MAXSEG, 32768) == -EINVAL, "a TCP_MAXSEG of 32768 is taken");
	rule(get(p.server, IPPROTO_TCP, TCP_MAXSEG) == (int)info(p.server).tcpi_snd_mss,
	     "without repair, TCP_MAXSEG does not read the segments' size");
	/* twelve octets less where the timestamp option is on */
	rule(size_of_segments(family, 0) <= (family == AF_INET ? 536 : 1220),
	     "a restored socket that was told nothing sends segments of more than the least MSS");
	rule(size_of_segments(family, 1400) >= 1400 - 12,
	     "a restored socket does not send segments of the size it was told");
	close(fd);
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
