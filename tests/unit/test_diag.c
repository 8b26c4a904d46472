// SPDX-License-Identifier: BSD-2-Clause
/*
 * diag_has_socket() on real sockets, in a network namespace of the test's own: exactly the tuple's
 * own socket is found, never a listener or a socket on any address in its stead; and what is no
 * answer is not taken for one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "base/util.h"
#include "net/diag.h"

static const char *const loopback[] = { "127.0.0.1", "::1" };

static struct ferry_flow flow_of(int fd, uint8_t proto, bool connected)
{
	struct ferry_flow f = { .proto = proto };
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &size), 0);
	assert_int_equal(addr_from_sockaddr(&ss, f.daddr, &f.dport), 0);
	size = sizeof(ss);
	if (connected) {
		assert_int_equal(getpeername(fd, (struct sockaddr *)&ss, &size), 0);
		assert_int_equal(addr_from_sockaddr(&ss, f.saddr, &f.sport), 0);
	} else if (addr_is_v4(f.daddr)) {
		memset(f.saddr + 10, 0xff, 2);
	}
	return f;
}

static int bound(const char *text, int type, bool v6_socket)
{
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;
	int fd;

	assert_int_equal(addr_parse(text, addr), 0);
	size = addr_to_sockaddr(addr, 0, v6_socket, &ss);
	fd = socket(ss.ss_family, type, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, size), 0);
	return fd;
}

static void connect_to(int fd, int listener, const char *text, bool v6_socket)
{
	struct ferry_flow to = flow_of(listener, IPPROTO_TCP, false);
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	assert_int_equal(addr_parse(text, addr), 0);
	size = addr_to_sockaddr(addr, to.dport, v6_socket, &ss);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, size), 0);
}

/* mapped: a v6 listener on any address, met over IPv4. */
static void check_tcp(const char *text, bool mapped)
{
	int listener = bound(mapped ? "::" : text, SOCK_STREAM, mapped || strchr(text, ':'));
	int client = bound(text, SOCK_STREAM, false), server;
	struct ferry_flow f, other;

	assert_int_equal(listen(listener, 1), 0);
	connect_to(client, listener, text, false);
	server = accept(listener, NULL, NULL);
	f = flow_of(server, IPPROTO_TCP, true);
	assert_int_equal(diag_has_socket(-1, &f), 1);
	other = f;
	other.sport ^= htons(1);
	assert_int_equal(diag_has_socket(-1, &other), 0); /* the listener matches, and is not it */
	close(server);
	assert_int_equal(diag_has_socket(-1, &f), 1); /* FIN_WAIT2 */
	close(client);
	assert_int_equal(diag_has_socket(-1, &f), 1); /* TIME_WAIT */
	close(listener);
}

static void check_udp(const char *text, bool mapped)
{
	int any = bound(strchr(text, ':') ? "::" : "0.0.0.0", SOCK_DGRAM, false);
	int one = bound(text, SOCK_DGRAM, mapped), peer = bound(text, SOCK_DGRAM, false);
	struct ferry_flow f = flow_of(one, IPPROTO_UDP, false), wild = f, connected;
	struct ferry_flow at = flow_of(peer, IPPROTO_UDP, false);
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(at.daddr, at.dport, mapped, &ss);

	assert_int_equal(diag_has_socket(-1, &f), 1);
	wild.dport = flow_of(any, IPPROTO_UDP, false).dport;
	assert_int_equal(diag_has_socket(-1, &wild), 0); /* a socket on any address has that port */
	assert_int_equal(connect(one, (struct sockaddr *)&ss, size), 0);
	connected = flow_of(one, IPPROTO_UDP, true);
	assert_int_equal(diag_has_socket(-1, &connected), 1);
	assert_int_equal(diag_has_socket(-1, &f), 0);
	close(one);
	assert_int_equal(diag_has_socket(-1, &connected), 0);
	close(any);
	close(peer);
}

static void every_state_of_a_connection_counts(void **state)
{
	(void)state;
	/* on one processor one look in a few hundred meets a socket that changes */
	for (int n = 0; n < 200; n++) {
		for (unsigned int i = 0; i < ARRAY_SIZE(loopback); i++)
			check_tcp(loopback[i], false);
		check_tcp(loopback[0], true);
	}
}

static void a_datagram_socket_is_found_by_its_name(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(loopback); i++)
		check_udp(loopback[i], false);
	check_udp(loopback[0], true);
}

static void no_answer_is_no_no(void **state)
{
	/* whoever shares a lent socket may have every answer cut to its first octets */
	struct sock_filter cut[] = { { BPF_RET | BPF_K, 0, 0, 8 } };
	struct sock_fprog program = { 1, cut };
	int lent = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
	int fd = bound(loopback[0], SOCK_DGRAM, false);
	struct ferry_flow f = flow_of(fd, IPPROTO_UDP, false), other = f;

	(void)state;
	other.dport ^= htons(1);
	assert_int_equal(diag_has_socket(lent, &f), 1);
	assert_int_equal(diag_has_socket(lent, &other), 0);
	assert_int_equal(setsockopt(lent, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
			 0);
	assert_true(diag_has_socket(lent, &f) < 0);
	assert_true(diag_has_socket(lent, &other) < 0);
	/* the kernel says the same of a protocol that it has no module for as of no socket */
	other.proto = 253; /* RFC 3692: of nobody's */
	assert_int_equal(diag_has_socket(-1, &other), -EOPNOTSUPP);
	assert_false(diag_answers(other.proto));
	assert_true(diag_answers(IPPROTO_TCP) && diag_answers(IPPROTO_UDP));
	close(lent);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_of_a_connection_counts),
		cmocka_unit_test(a_datagram_socket_is_found_by_its_name),
		cmocka_unit_test(no_answer_is_no_no),
	};

	if (unshare(CLONE_NEWNET) || system("ip link set lo up")) {
		fprintf(stderr, "test_diag: no network namespace: run it as root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
