// SPDX-License-Identifier: BSD-2-Clause
/*
 * What it costs to hand a connection over: N connections are queued at a listener, which is shut down,
 * with the guard's program, to another one; and, as the baseline in the same run, the same without the
 * program and the other listener, where the kernel resets them. On loopback, in a network namespace of
 * its own. A JSON line a row: {name, ns, stub_ns, ratio}, medians, by connection.
 */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <ferry/listener.h>
#include "listener.skel.h"

#define ROUNDS 15
#define MOST 2000

static void fail(const char *what)
{
	fprintf(stderr, "handover: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static int listener(int family, uint16_t port)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port),
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(family, SOCK_STREAM, 0), one = 1;
	bool v6 = family == AF_INET6;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
	    bind(fd, v6 ? (struct sockaddr *)&six : (struct sockaddr *)&four,
		 v6 ? sizeof(six) : sizeof(four)) ||
	    listen(fd, 65535))
		fail("listen");
	return fd;
}

static int dial(int listening)
{
	struct sockaddr_storage a;
	socklen_t size = sizeof(a);
	int fd;

	getsockname(listening, (struct sockaddr *)&a, &size);
	fd = socket(a.ss_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, size))
		fail("connect");
	return fd;
}

/* Nanoseconds of the shutdown of a listener with n queued; guarded: they go to another one. */
static uint64_t once(int family, int n, bool guarded)
{
	static uint16_t port = 10000;
	static int clients[MOST];
	struct listener_bpf *b = guarded ? listener_bpf__open_and_load() : NULL;
	struct listener_slot s = { .generation = 1, .weight = 1, .room = n + 1 };
	struct listener_group group = { .working = 1, .open = 1 };
	int from = listener(family, ++port), to = -1, zero = 0;
	uint32_t slot = LISTENER_FIRST;
	uint64_t began, value;

	for (int i = 0; i < n; i++)
		clients[i] = dial(from);
	if (guarded) {
		int program = b ? bpf_program__fd(b->progs.listener) : -1;

		to = listener(family, port);
		value = (uint64_t)to;
		if (!b || setsockopt(to, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)) ||
		    bpf_map_update_elem(bpf_map__fd(b->maps.socks), &slot, &value, BPF_ANY) ||
		    bpf_map_update_elem(bpf_map__fd(b->maps.slots), &slot, &s, BPF_ANY) ||
		    bpf_map_update_elem(bpf_map__fd(b->maps.group), &zero, &group, BPF_ANY))
			fail("the listener program");
	}
	began = now();
	shutdown(from, SHUT_RDWR);
	began = now() - began;
	for (int i = 0; guarded && i < n; i++) { /* all of them have come */
		int fd = accept(to, NULL, NULL);

		if (fd < 0)
			fail("accept");
		close(fd);
	}
	for (int i = 0; i < n; i++)
		close(clients[i]);
	close(from);
	if (to >= 0)
		close(to);
	listener_bpf__destroy(b);
	return began;
}

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

int main(void)
{
	static const int sizes[] = { 1, 100, MOST };
	struct rlimit files = { 16384, 16384 };
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	FILE *f;

	if (unshare(CLONE_NEWNET) || ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &lo))
		fail("a network namespace");
	f = fopen("/proc/sys/net/core/somaxconn", "w");
	if (!f || fprintf(f, "65535") < 0 || fclose(f))
		fail("somaxconn");
	setrlimit(RLIMIT_NOFILE, &files);
	for (int family = 0; family < 2; family++)
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			uint64_t with[ROUNDS], without[ROUNDS];
			int n = sizes[i], af = family ? AF_INET6 : AF_INET;

			for (int r = 0; r < ROUNDS; r++) {
				with[r] = once(af, n, true);
				without[r] = once(af, n, false);
			}
			qsort(with, ROUNDS, sizeof(*with), compare);
			qsort(without, ROUNDS, sizeof(*without), compare);
			printf("{\"name\": \"handover_%d_v%d\", \"ns\": %.0f, \"stub_ns\": %.0f, "
			       "\"ratio\": %.2f}\n",
			       n, family ? 6 : 4, (double)with[ROUNDS / 2] / n,
			       (double)without[ROUNDS / 2] / n,
			       (double)with[ROUNDS / 2] / (double)without[ROUNDS / 2]);
		}
	return 0;
}
