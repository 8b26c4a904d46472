// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_TIMESTAMP is read and set in repair; its lowest bit says microseconds, since Linux 6.7.
 * Relied on: ctl/repair/tcp.c (extract_options), ctl/repair/restore.c (restore_options).
 * Kernel: net/ipv4/tcp.c, do_tcp_setsockopt and do_tcp_getsockopt: TCP_TIMESTAMP.
 */
#include <sys/utsname.h>
#include "rule.h"

static bool since_6_7(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	need(!uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2);
	return major > 6 || (major == 6 && minor >= 7);
}

static void shown(int family)
{
	const struct tcp_repair_opt o = { OPT_TIMESTAMP, 0 };
	int fd = restored(family), now;

	need(!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, &o, sizeof(o)));
	for (int i = 0; i < 50; i++) {
		rule(!set_tcp(fd, TCP_TIMESTAMP, 1000000), "TCP_TIMESTAMP cannot be set");
		now = get(fd, IPPROTO_TCP, TCP_TIMESTAMP);
		rule(now >= 1000000 && now < 1010000, "a clock of 1000000 is read as %d", now);
		rule(!since_6_7() || !(now & 1), "milliseconds are read with the lowest bit set");
		poll(NULL, 0, 1);
	}
	need(!set_tcp(fd, TCP_TIMESTAMP, 1000001));
	now = get(fd, IPPROTO_TCP, TCP_TIMESTAMP);
	rule(!since_6_7() || now & 1, "microseconds are read with the lowest bit clear");
	need(!set_tcp(fd, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP));
	rule(set_tcp(fd, TCP_TIMESTAMP, 2) == -EPERM, "TCP_TIMESTAMP is set without repair");
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
