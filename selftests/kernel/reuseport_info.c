// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_INFO of a listener has how many wait in tcpi_unacked, and its backlog in tcpi_sacked.
 * Relied on: ctl/guard/group.c (on_queue: room is one more than the backlog).
 * Kernel: net/ipv4/tcp.c, tcp_get_info; net/socket.c, __sys_listen; include/net/sock.h,
 * sk_acceptq_is_full.
 */
#include "reuseport.h"

static int somaxconn(void)
{
	FILE *f = fopen("/proc/sys/net/core/somaxconn", "re");
	int most = 0;

	need(f && fscanf(f, "%d", &most) == 1);
	fclose(f);
	return most;
}

/* The backlog is at most somaxconn, and one more than that waits. */
static void shown(int family)
{
	struct name at = loopback(family, PORT);
	int fd = listener_at(&at, PLAIN, 2), one[4], most = somaxconn(), before;

	need(fd >= 0);
	for (int i = 0; i < 3; i++) {
		rule(queued(fd) == i && info(fd).tcpi_sacked == 2,
		     "%d wait, TCP_INFO says %d of %d", i, queued(fd), info(fd).tcpi_sacked);
		one[i] = socket(family, SOCK_STREAM, 0);
		need(!connect_to(one[i], family, PORT));
		settle();
	}
	before = counter("ListenOverflows");
	one[3] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	need(connect_to(one[3], family, PORT) == -EINPROGRESS);
	settle();
	rule(queued(fd) == 3 && counter("ListenOverflows") == before + 1,
	     "a listener with backlog 2 takes a fourth connection");
	need(!listen(fd, most + 1));
	rule((int)info(fd).tcpi_sacked == most, "a backlog is not cut to somaxconn, %d", most);
	for (int i = 0; i < 4; i++)
		close(one[i]);
	close(fd);
	new_namespace();
}

int main(void)
{
	return for_each_family(shown);
}
