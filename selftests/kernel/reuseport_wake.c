// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who waits in epoll for a listener is woken by what moves to it, since 6.1.175, 6.12.86, 6.18.27.
 * Relied on: ctl/guard/group.c (group_hand_over wakes nobody itself).
 * Kernel: net/ipv4/inet_connection_sock.c, inet_csk_listen_stop: sk_data_ready of the new listener.
 */
#include <sys/epoll.h>
#include "reuseport.h"

/*
 * Before (CVE-2026-46015) only the next SYN woke it. Edge-triggered, a listener is ready only where
 * somebody was woken: its state is not looked at again.
 */
static void shown(int family)
{
	struct group g = group(family, 64);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0), more = socket(family, SOCK_STREAM, 0);

	need(!epoll_ctl(epoll, EPOLL_CTL_ADD, g.to, &event));
	need(!attach(g.from, migrate_to(g.array, 0)) && epoll_wait(epoll, &event, 1, 0) == 0);
	close(g.from);
	need(queued(g.to) == CLIENTS);
	rule(epoll_wait(epoll, &event, 1, 0) == 1, "who waits for a listener sleeps on over %d",
	     queued(g.to));
	need(epoll_wait(epoll, &event, 1, 0) == 0 && !connect_to(more, family, PORT));
	settle();
	rule(epoll_wait(epoll, &event, 1, 0) == 1, "who waits for a listener sleeps on over a SYN");
	rule(served(g.to) == CLIENTS && !reset(&g.c), "some are lost");
	close(more);
	close(epoll);
	part(&g);
}

int main(void)
{
	return for_each_family(shown);
}
