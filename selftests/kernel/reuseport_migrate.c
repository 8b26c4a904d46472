// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connections that wait are reset with their listener, unless the sysctl or a program moves them.
 * Relied on: bpf/listener.bpf.c, ctl/guard/group.c (the sysctl is left alone).
 * Kernel: net/ipv4/inet_connection_sock.c, inet_csk_listen_stop; net/core/sock_reuseport.c,
 * reuseport_migrate_sock.
 */
#include "reuseport.h"

enum { NOTHING, SYSCTL, SELECTS, MIGRATES, WAYS };
static const char *const names[WAYS] = { "nothing", "the sysctl", "a program that selects",
					 "a program that selects or migrates" };

static void sysctl_on(void)
{
	int fd = open("/proc/sys/net/ipv4/tcp_migrate_req", O_WRONLY);

	need(fd >= 0 && write(fd, "1", 1) == 1 && !close(fd));
}

/* The program does it with the sysctl 0. What is not tried is not counted. */
static void shown(int family)
{
	for (int way = 0; way < WAYS; way++) {
		struct group g = group(family, 64);
		int want = way == SYSCTL || way == MIGRATES ? CLIENTS : 0, got, lost;

		if (way == SYSCTL)
			sysctl_on();
		if (way == SELECTS)
			need(!attach(g.from,
				     chooser(BPF_SK_REUSEPORT_SELECT, g.array, 0, SK_PASS)));
		if (way == MIGRATES)
			need(!attach(g.from, migrate_to(g.array, 0)));
		close(g.from);
		got = served(g.to);
		lost = reset(&g.c);
		rule(got == want && lost == CLIENTS - want, "with %s: %d moved, %d reset, of %d",
		     names[way], got, lost, CLIENTS);
		rule(moved() == want && not_moved() == 0, "with %s: counted as %d moved, %d not",
		     names[way], moved(), not_moved());
		part(&g);
	}
}

int main(void)
{
	return for_each_family(shown);
}
