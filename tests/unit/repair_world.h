/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real sockets in a network namespace of the test's own, lo only, for the tests of ctl/repair. A
 * deaf socket (a filter that takes nothing) is what a fence is to it: nothing is acknowledged.
 */
#ifndef REPAIR_WORLD_H
#define REPAIR_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <cmocka.h>
#include "base/util.h"
#include "repair/repair.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

enum family { V4, V6, MAPPED, FAMILIES };
static const char *const family_names[FAMILIES] = { "IPv4", "IPv6", "IPv4 on an IPv6 socket" };
static const char *const loopbacks[FAMILIES] = { "127.0.0.1", "::1", "127.0.0.1" };

static inline int own_namespace(void **state)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	(void)state;
	if (unshare(CLONE_NEWNET)) {
		print_error("this test needs CAP_SYS_ADMIN and CAP_NET_ADMIN: %s\n",
			    strerror(errno));
		return -1;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return ioctl(fd, SIOCSIFFLAGS, &lo) || close(fd) ? -1 : 0;
}

static inline int new_socket(enum family f, int type)
{
	int fd = socket(f == V4 ? AF_INET : AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

/* At the family's loopback address, any port. */
static inline int bound(enum family f, int type)
{
	int fd = new_socket(f, type);
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	assert_int_equal(addr_parse(loopbacks[f], addr), 0);
	size = addr_to_sockaddr(addr, 0, f != V4, &ss);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, size), 0);
	return fd;
}

static inline void connect_to(int fd, int to)
{
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);

	assert_int_equal(getsockname(to, (struct sockaddr *)&ss, &size), 0);
	assert_true(!connect(fd, (struct sockaddr *)&ss, size) || errno == EINPROGRESS);
}

static inline bool ready(int fd, short events)
{
	struct pollfd p = { fd, events, 0 };

	return poll(&p, 1, 3000) == 1;
}

struct pair {
	int listener, client, server;
};

static inline void pair_open(struct pair *p, enum family f)
{
	p->listener = bound(f, SOCK_STREAM);
	assert_int_equal(listen(p->listener, 8), 0);
	p->client = new_socket(f == V6 ? V6 : f, SOCK_STREAM);
	connect_to(p->client, p->listener);
	assert_true(ready(p->listener, POLLIN));
	p->server = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(p->server >= 0);
}

static inline void pair_close(struct pair *p)
{
	close_fd(&p->client);
	close_fd(&p->server);
	close_fd(&p->listener);
}

static inline void deafen(int fd, bool on)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { 1, &nothing };
	int zero = 0;

	assert_int_equal(on ? setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
					 sizeof(program)) :
			      setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof(zero)),
			 0);
}

static inline int option(int fd, int level, int name)
{
	int value = 0;
	socklen_t size = sizeof(value);

	return getsockopt(fd, level, name, &value, &size) ? -errno : value;
}

static inline void set_option(int fd, int level, int name, int value)
{
	assert_int_equal(setsockopt(fd, level, name, &value, sizeof(value)), 0);
}

static inline uint8_t octet(uint64_t at)
{
	return (uint8_t)(at * 31 + (at >> 8));
}

/* Writes up to size octets of the pattern from at on; how many went. */
static inline size_t put(int fd, uint64_t at, size_t size)
{
	uint8_t buf[4096];
	size_t done = 0;

	while (done < size) {
		size_t n = size - done < sizeof(buf) ? size - done : sizeof(buf);
		ssize_t r;

		for (size_t i = 0; i < n; i++)
			buf[i] = octet(at + done + i);
		r = send(fd, buf, n, MSG_NOSIGNAL);
		if (r <= 0)
			break;
		done += (size_t)r;
	}
	return done;
}

/* Reads exactly size octets of the pattern. */
static inline void get(int fd, uint64_t at, size_t size)
{
	uint8_t buf[4096];

	for (size_t done = 0; done < size;) {
		size_t n = size - done < sizeof(buf) ? size - done : sizeof(buf);
		ssize_t r;

		if (!ready(fd, POLLIN))
			fail_msg("nothing after %zu of %zu octets", done, size);
		r = recv(fd, buf, n, 0);
		if (r <= 0)
			fail_msg("recv after %zu of %zu octets: %zd, %s", done, size, r,
				 strerror(errno));
		for (ssize_t i = 0; i < r; i++)
			if (buf[i] != octet(at + done + (size_t)i))
				fail_msg("octet %zu is wrong", done + (size_t)i);
		done += (size_t)r;
	}
}

/* Neither data, nor an end, nor an error. */
static inline void assert_quiet(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(option(fd, SOL_SOCKET, SO_ERROR), 0);
}

static inline void check(int fd, struct repair_image *image)
{
	const char *refusal = "none";

	memset(image, 0, sizeof(*image));
	if (repair_check(fd, image, &refusal))
		fail_msg("refused: %s", refusal);
}

static inline void works(int r, const struct repair_image *image)
{
	if (r)
		fail_msg("%s: %s", image->step, strerror(-r));
}

/* Waits until what TCP_INFO says of the socket is so, or says that it never was. */
static inline void wait_info(int fd, bool (*so)(const struct tcp_info *info))
{
	struct tcp_info info;
	socklen_t size;

	for (int i = 0; i < 5000; i++) {
		size = sizeof(info);
		memset(&info, 0, sizeof(info));
		assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
		if (so(&info))
			return;
		poll(NULL, 0, 1);
	}
	fail_msg("the socket never came to the state that was waited for");
}

#endif
