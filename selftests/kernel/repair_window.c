// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_REPAIR_WINDOW is EINVAL where rcv_wup is past rcv_nxt, so it comes after the receive queue.
 * Relied on: ctl/repair/restore.c (the order of repair_restore), ctl/move/image.c.
 * Kernel: net/ipv4/tcp.c, tcp_repair_set_window.
 */
#include "rule.h"

static int set_window(int fd, const struct tcp_repair_window *w, socklen_t size)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, w, size) ? -errno : 0;
}

static void shown(int family)
{
	int fd = restored(family);
	struct tcp_repair_window w, back, bad;
	socklen_t size = sizeof(w);

	rule(!getsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &w, &size) && size == sizeof(w),
	     "TCP_REPAIR_WINDOW cannot be read");
	rule(set_window(fd, &w, sizeof(w) - 4) == -EINVAL, "a short TCP_REPAIR_WINDOW is taken");
	w.rcv_wup += 5; /* as an origin with five octets in its receive queue has it */
	rule(set_window(fd, &w, sizeof(w)) == -EINVAL, "an rcv_wup past rcv_nxt is taken");
	need(!set_tcp(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) && send(fd, "ferry", 5, 0) == 5);
	rule(!set_window(fd, &w, sizeof(w)), "an rcv_wup at rcv_nxt is not taken");
	w.rcv_wnd = 40000, w.snd_wnd = 30000, w.max_window = 30000;
	rule(!set_window(fd, &w, sizeof(w)), "other windows are not taken");
	size = sizeof(back);
	need(!getsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &back, &size));
	rule(!memcmp(&w, &back, sizeof(w)), "TCP_REPAIR_WINDOW reads otherwise than it was set");
	bad = w, bad.max_window = w.snd_wnd - 1;
	rule(set_window(fd, &bad, sizeof(bad)) == -EINVAL, "a snd_wnd over max_window is taken");
	bad = w, bad.snd_wl1 = w.rcv_wup + w.rcv_wnd + 1;
	rule(set_window(fd, &bad, sizeof(bad)) == -EINVAL, "a snd_wl1 past the window is taken");
	need(!set_tcp(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP));
	rule(set_window(fd, &w, sizeof(w)) == -EPERM, "TCP_REPAIR_WINDOW is set without repair");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
