// SPDX-License-Identifier: BSD-2-Clause
/*
 * What cannot move is refused by id, untouched (ctl/repair/check.c); what may be lent to be filled;
 * and UDP sockets, whose queue is peeked, never read (ctl/repair/udp.c).
 */
#include <sys/un.h>
#include "repair_world.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static struct pair live;

static int listener(enum family f)
{
	(void)f;
	return dup(live.listener);
}

static int established(enum family f)
{
	(void)f;
	return dup(live.server);
}

static int unconnected(enum family f)
{
	return new_socket(f, SOCK_STREAM);
}

static int bound_only(enum family f)
{
	return bound(f, SOCK_STREAM);
}

static int connecting(enum family f)
{
	int fd = new_socket(f, SOCK_STREAM);

	deafen(live.listener, true);
	connect_to(fd, live.listener);
	deafen(live.listener, false);
	return fd;
}

static int peer_has_ended(enum family f)
{
	(void)f;
	shutdown(live.client, SHUT_WR);
	assert_true(ready(live.server, POLLIN));
	return dup(live.server);
}

static int we_have_ended(enum family f)
{
	(void)f;
	shutdown(live.server, SHUT_WR);
	return dup(live.server);
}

static bool is_closed(const struct tcp_info *info)
{
	return info->tcpi_state == 7; /* TCP_CLOSE */
}

static int both_have_ended(enum family f)
{
	(void)f;
	shutdown(live.client, SHUT_RDWR);
	shutdown(live.server, SHUT_RDWR);
	wait_info(live.server, is_closed);
	return dup(live.server);
}

static int mptcp(enum family f)
{
	return socket(f == V4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);
}

static int udp_unbound(enum family f)
{
	return new_socket(f, SOCK_DGRAM);
}

static int udp_wildcard(enum family f)
{
	int fd = new_socket(f, SOCK_DGRAM), zero = 0;
	struct sockaddr_storage ss = { .ss_family = f == V4 ? AF_INET : AF_INET6 };

	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	((struct sockaddr_in *)&ss)->sin_port = htons(4444);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, sizeof(struct sockaddr_in6)), 0);
	return fd;
}

static int udp_bound(enum family f)
{
	return bound(f, SOCK_DGRAM);
}

static int raw(enum family f)
{
	return socket(f == V4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC,
		      f == V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

static int local(enum family f)
{
	(void)f;
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int a_pipe(enum family f)
{
	int fds[2];

	(void)f;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	return fds[0];
}

static int a_file(enum family f)
{
	(void)f;
	return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

static int closed(enum family f)
{
	(void)f;
	return 1000;
}

static const struct {
	const char *name;
	int (*make)(enum family f);
	const char *refusal;       /* NULL: it can move */
	bool empty_tcp, empty_udp; /* it can be lent */
} rows[] = {
	{ "established", established, NULL, false, false },
	{ "bound UDP", udp_bound, NULL, false, false },
	{ "listener", listener, "listen", false, false },
	{ "unconnected", unconnected, "not-connected", true, false },
	{ "bound, unconnected", bound_only, "not-connected", false, false },
	{ "SYN sent", connecting, "tcp-state", false, false },
	{ "the peer has ended", peer_has_ended, "tcp-state", false, false },
	{ "we have ended", we_have_ended, "tcp-state", false, false },
	{ "both have ended", both_have_ended, "not-connected", false, false },
	{ "MPTCP", mptcp, "mptcp", false, false },
	{ "UDP unbound", udp_unbound, "addr-wildcard", false, true },
	{ "UDP at any address", udp_wildcard, "addr-wildcard", false, false },
	{ "raw", raw, "not-tcp", false, false },
	{ "UNIX", local, "not-inet", false, false },
	{ "pipe", a_pipe, "not-inet", false, false },
	{ "file", a_file, "not-inet", false, false },
	{ "no descriptor", closed, "not-inet", false, false },
};

static void each_is_refused_by_id(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			struct repair_image image = {}, tcp = {}, udp = {};
			const char *refusal = NULL;
			int fd;

			pair_open(&live, f);
			fd = rows[i].make(f);
			printf("%s, %s\n", rows[i].name, family_names[f]);
			assert_true(fd >= 0);
			assert_int_equal(repair_check(fd, &image, &refusal),
					 rows[i].refusal ? -EINVAL : 0);
			if (rows[i].refusal)
				assert_string_equal(refusal, rows[i].refusal);
			tcp.flow.proto = IPPROTO_TCP;
			udp.flow.proto = IPPROTO_UDP;
			tcp.v6_socket = udp.v6_socket = f != V4;
			assert_int_equal(repair_is_empty(fd, &tcp), rows[i].empty_tcp);
			assert_int_equal(repair_is_empty(fd, &udp), rows[i].empty_udp);
			tcp.v6_socket = udp.v6_socket = f == V4;
			assert_false(repair_is_empty(fd, &tcp) || repair_is_empty(fd, &udp));
			if (fd != 1000)
				close(fd);
			pair_close(&live);
		}
	}
}

/* and an empty one behind them */
static const size_t sizes[] = { 10, 3000, 1 };

static int client_of(int server, enum family f)
{
	int fd = bound(f, SOCK_DGRAM);

	connect_to(fd, server);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		assert_int_equal(put(fd, i, sizes[i]), sizes[i]);
	assert_int_equal(send(fd, "", 0, 0), 0);
	return fd;
}

static void datagrams(const struct repair_image *image)
{
	const struct datagram *d = image->datagrams;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++, d = d->next) {
		assert_non_null(d);
		assert_int_equal(d->size, sizes[i]);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(d->data[k], octet(i + k));
		assert_true(d->port);
	}
	assert_non_null(d);
	assert_int_equal(d->size, 0);
	assert_null(d->next);
}

static void queued_datagrams_stay_after_an_abort(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		for (int peek = -1; peek < 2; peek++) {
			int server = bound(f, SOCK_DGRAM), client = client_of(server, f);
			struct repair_image image;
			char c[4000];

			set_option(server, SOL_SOCKET, SO_REUSEADDR, 1);
			set_option(server, SOL_SOCKET, SO_PEEK_OFF, peek);
			check(server, &image);
			works(repair_freeze(server, &image), &image);
			works(repair_extract(server, &image), &image);
			datagrams(&image);
			assert_int_equal(repair_arrived(server, &image), 0);
			works(repair_unfreeze(server, &image), &image);
			assert_int_equal(option(server, SOL_SOCKET, SO_PEEK_OFF), peek);
			assert_int_equal(option(server, SOL_SOCKET, SO_REUSEADDR), 1);
			for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
				assert_int_equal(recv(server, c, sizeof(c), 0), sizes[i]);
			assert_int_equal(recv(server, c, sizeof(c), 0), 0);
			assert_quiet(server);
			repair_image_clear(&image);
			close(server);
			close(client);
		}
	}
}

static void a_udp_socket_moves(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		for (int connected = 0; connected < 2; connected++) {
			int server = bound(f, SOCK_DGRAM), client = client_of(server, f);
			int to = new_socket(f, SOCK_DGRAM);
			struct repair_image image, same;
			const char *refusal;

			if (connected)
				connect_to(server, client);
			check(server, &image);
			assert_int_equal(image.connected, connected);
			/* B37: taken, for as long as the origin has it */
			assert_int_equal(repair_claim(to, &image), -EADDRINUSE);
			works(repair_freeze(server, &image), &image);
			works(repair_extract(server, &image), &image);
			close(server);
			works(repair_claim(to, &image), &image);
			works(repair_restore(to, &image), &image);
			works(repair_thaw(to, &image), &image);
			works(repair_probe(to, &image), &image);
			assert_int_equal(repair_check(to, &same, &refusal), 0);
			assert_memory_equal(&same.flow, &image.flow, sizeof(same.flow));
			assert_int_equal(same.connected, connected);
			assert_int_equal(put(client, 5, 100), 100);
			get(to, 5, 100);
			repair_image_clear(&image);
			close(to);
			close(client);
		}
	}
}

/* An ICMP error that waits to be read is no reason not to move. */
static void a_pending_error_does_not_hinder(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		int server = bound(f, SOCK_DGRAM), client = client_of(server, f);
		struct repair_image image;

		connect_to(server, client);
		close(client);
		assert_int_equal(send(server, "x", 1, 0), 1); /* port unreachable */
		check(server, &image);
		works(repair_freeze(server, &image), &image);
		works(repair_extract(server, &image), &image);
		datagrams(&image);
		works(repair_unfreeze(server, &image), &image);
		repair_image_clear(&image);
		close(server);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_is_refused_by_id),
		cmocka_unit_test(queued_datagrams_stay_after_an_abort),
		cmocka_unit_test(a_udp_socket_moves),
		cmocka_unit_test(a_pending_error_does_not_hinder),
	};

	return cmocka_run_group_tests(tests, own_namespace, NULL);
}
