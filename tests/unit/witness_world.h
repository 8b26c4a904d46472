/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real listeners and their clients in a network namespace of the test's own, lo only, and a ledger
 * of what they lose, for the tests of the witness.
 */
#ifndef WITNESS_WORLD_H
#define WITNESS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "base/util.h"
#include "listener/account.h"
#include "listener/ledger.h"

#define CLIENTS 40

static const char *const families[] = { "IPv4", "IPv6" };
static const char *const loopback[] = { "127.0.0.1", "::1" };

static struct ledger ledger;
static struct witness_close told; /* the last of the port that ledger.data is */
static unsigned int told_clients;

static inline int own_world(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	if (unshare(CLONE_NEWNET)) {
		print_error(
			"this test needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON: "
			"%s\n",
			strerror(errno));
		return -1;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return ioctl(fd, SIOCSIFFLAGS, &lo) || close(fd) ? -1 : 0;
}

static inline void set_migrate(bool on)
{
	_cleanup_close_ int fd = open("/proc/sys/net/ipv4/tcp_migrate_req", O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, on ? "1" : "0", 1), 1);
}

/* port 0: one that nobody has had, so that an address has one close. */
static inline int listen_at(int family, bool wildcard, uint16_t port)
{
	static uint16_t last = 2000; /* in this namespace nobody else binds */
	int fd = socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	assert_int_equal(addr_parse(!wildcard ? loopback[family] :
				    family    ? "::" :
						"0.0.0.0",
				    addr),
			 0);
	size = addr_to_sockaddr(addr, htons(port ? port : ++last), family, &ss);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, size), 0);
	assert_int_equal(listen(fd, CLIENTS), 0);
	return fd;
}

static inline uint16_t port_of(int fd)
{
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);
	uint8_t addr[16];
	uint16_t port;

	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &size), 0);
	assert_int_equal(addr_from_sockaddr(&ss, addr, &port), 0);
	return ntohs(port);
}

static inline void abort_it(int fd)
{
	struct linger now = { 1, 0 };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
}

/* Connected, and with something sent, which nobody reads. */
static inline int client(int family, uint16_t port)
{
	int fd = socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	assert_int_equal(addr_parse(loopback[family], addr), 0);
	size = addr_to_sockaddr(addr, htons(port), family, &ss);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, size), 0);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
	return fd;
}

static inline void wait_queued(int listener, uint32_t count)
{
	struct tcp_info info;
	socklen_t size;

	for (int i = 0; i < 10000; i++) {
		size = sizeof(info);
		assert_int_equal(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
		if (info.tcpi_unacked == count)
			return;
		poll(NULL, 0, 1);
	}
	fail_msg("%u queued, not %u", info.tcpi_unacked, count);
}

/* How many of them have been reset; waits for those that will be. */
static inline int count_resets(const int *fds, int n, int expected)
{
	int resets = 0;

	for (int tries = 0; tries < 3000 && resets < expected; tries++) {
		resets = 0;
		for (int i = 0; i < n; i++) {
			struct pollfd p = { fds[i], 0, 0 };

			resets += poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
		}
		poll(NULL, 0, 1);
	}
	return resets;
}

static inline void on_close(const struct witness_close *c, void *data)
{
	const uint16_t *port = data;

	if (c->key.port == *port)
		told = *c;
}

static inline void on_client(const struct witness_client *c, void *data)
{
	const uint16_t *port = data;

	told_clients += c->key.port == *port && c->remote_port && c->local_port == *port;
}

static inline uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size), 0);
	return cookie;
}

static inline void read_all(void)
{
	while (ledger_poll(&ledger, 0) > 0)
		;
}

/* In a namespace of its own. 0, or says why not. */
static inline int world_open(void)
{
	if (own_world())
		return -1;
	if (ledger_open(&ledger, NULL, true) || ledger_start(&ledger)) {
		print_error("%s\n", ledger.error);
		return -1;
	}
	ledger.closed = on_close;
	ledger.client = on_client;
	return 0;
}

#endif
