// SPDX-License-Identifier: BSD-2-Clause
/*
 * The socket half of a move (ctl/repair/repair.h) on live connections over lo, in the order of its
 * contract: a connection with unread, unacknowledged and unsent octets is taken out of its socket,
 * closed without a packet, and put into an empty one; the peer sees every octet and no end. Then
 * what is refused, and that an abort leaves a socket as it was.
 */
#include "repair_world.h"

#define UNREAD 5000
#define WRITTEN 400000

/* The client has written what is not read yet; the server what is partly not acknowledged, partly
 * not even sent. The client is deaf from then on. */
static size_t load_queues(const struct pair *p)
{
	size_t written;

	assert_int_equal(put(p->client, 0, UNREAD), UNREAD);
	assert_true(ready(p->server, POLLIN));
	set_option(p->server, SOL_SOCKET, SO_SNDBUF, WRITTEN * 2);
	deafen(p->client, true);
	written = put(p->server, 7, WRITTEN);
	assert_true(written > 100000);
	return written;
}

static void freeze_and_extract(int fd, struct repair_image *image)
{
	check(fd, image);
	works(repair_freeze(fd, image), image);
	works(repair_extract(fd, image), image);
	/* stays there: from it the kernel sends nothing */
	assert_int_equal(option(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE), TCP_SEND_QUEUE);
	assert_int_equal(repair_arrived(fd, image), 0);
}

static void options_set(int fd)
{
	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 7000);
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

static void options_are_set(int fd)
{
	assert_int_equal(option(fd, SOL_SOCKET, SO_REUSEADDR), 1);
	assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 7000);
	assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(fd, SOL_SOCKET, SO_OOBINLINE), 0);
	assert_true(option(fd, IPPROTO_TCP, TCP_REPAIR) == 0);
}

static void moves_to_another_socket(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		struct repair_image image;
		struct pair p;
		size_t written;
		int to = new_socket(f, SOCK_STREAM), locks, mss;
		char c;

		printf("%s\n", family_names[f]);
		pair_open(&p, f);
		options_set(p.server);
		written = load_queues(&p);
		locks = option(p.server, SOL_SOCKET, SO_BUF_LOCK);
		mss = option(p.server, IPPROTO_TCP, TCP_MAXSEG);
		freeze_and_extract(p.server, &image);
		printf("  inq %u, outq %u, unsent %u\n", image.inq, image.outq, image.unsent);
		assert_int_equal(image.inq, UNREAD);
		assert_int_equal(image.outq, written);
		assert_true(image.unsent > 0 && image.unsent < image.outq);
		assert_int_equal(image.usec, false);

		works(repair_close(p.server, &image), &image);
		assert_int_equal(recv(p.server, &c, 1, 0), -1);
		assert_int_equal(errno, ECONNABORTED);
		assert_quiet(p.client);

		assert_true(repair_is_empty(to, &image));
		works(repair_claim(to, &image), &image);
		works(repair_restore(to, &image), &image);
		deafen(p.client, false);
		works(repair_thaw(to, &image), &image);
		works(repair_probe(to, &image), &image);
		printf("  segments of %d octets before, of %d after\n", mss,
		       option(to, IPPROTO_TCP, TCP_MAXSEG));
		assert_true(option(to, IPPROTO_TCP, TCP_MAXSEG) >= (mss < 32000 ? mss : 32000));
		assert_int_equal(put(to, 7 + written - image.unsent, image.unsent), image.unsent);
		set_option(to, SOL_SOCKET, SO_BUF_LOCK, (int)image.buf_lock);

		get(p.client, 7, written);
		get(to, 0, UNREAD);
		assert_int_equal(put(to, 1, 1000), 1000);
		assert_int_equal(put(p.client, 2, 1000), 1000);
		get(p.client, 1, 1000);
		get(to, 2, 1000);
		assert_quiet(p.client);
		assert_quiet(to);
		options_are_set(to);
		assert_int_equal(option(to, SOL_SOCKET, SO_BUF_LOCK), locks);
		repair_image_clear(&image);
		close(to);
		pair_close(&p);
	}
}

/* Moved 20 times in a row, a little in every queue each time. */
static void moves_again_and_again(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		struct pair p;
		uint64_t down = 0, up = 0;

		pair_open(&p, f);
		for (int i = 0; i < 20; i++) {
			struct repair_image image;
			int to = new_socket(f, SOCK_STREAM);

			assert_int_equal(put(p.client, up, 100), 100);
			assert_true(ready(p.server, POLLIN));
			set_option(p.server, IPPROTO_TCP, TCP_CORK, 1);
			assert_int_equal(put(p.server, down, 3000), 3000);
			freeze_and_extract(p.server, &image);
			assert_int_equal(image.inq, 100);
			assert_int_equal(image.unsent, 3000);
			works(repair_close(p.server, &image), &image);
			close(p.server);
			p.server = to;
			works(repair_claim(to, &image), &image);
			works(repair_restore(to, &image), &image);
			works(repair_thaw(to, &image), &image);
			works(repair_probe(to, &image), &image);
			put(to, down + 3000 - image.unsent, image.unsent);
			get(p.client, down, 3000);
			get(p.server, up, 100);
			down += 3000, up += 100;
			repair_image_clear(&image);
		}
		assert_quiet(p.client);
		printf("%s: 20 moves\n", family_names[f]);
		pair_close(&p);
	}
}

static void an_abort_leaves_it_as_it_was(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		for (int set = 0; set < 2; set++) {
			static const int names[] = { SO_SNDBUF,   SO_RCVBUF,    SO_BUF_LOCK,
						     SO_PEEK_OFF, SO_REUSEADDR, SO_KEEPALIVE,
						     SO_OOBINLINE };
			int before[ARRAY_SIZE(names)];
			struct repair_image image;
			struct pair p;
			size_t written;

			pair_open(&p, f);
			if (set)
				options_set(p.server);
			/* of TCP since Linux 6.9 */
			if (set && option(p.server, SOL_SOCKET, SO_PEEK_OFF) != -EOPNOTSUPP)
				set_option(p.server, SOL_SOCKET, SO_PEEK_OFF, 10);
			written = load_queues(&p);
			for (size_t i = 0; i < ARRAY_SIZE(names); i++)
				before[i] = option(p.server, SOL_SOCKET, names[i]);
			freeze_and_extract(p.server, &image);
			assert_int_equal(option(p.server, SOL_SOCKET, SO_KEEPALIVE), 0);
			assert_int_equal(option(p.server, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
			deafen(p.client, false);
			works(repair_unfreeze(p.server, &image), &image);
			works(repair_probe(p.server, &image), &image);
			for (size_t i = 0; i < ARRAY_SIZE(names); i++)
				if (option(p.server, SOL_SOCKET, names[i]) != before[i])
					fail_msg("%s: option %d: %d, was %d", family_names[f],
						 names[i], option(p.server, SOL_SOCKET, names[i]),
						 before[i]);
			if (set)
				options_are_set(p.server);
			get(p.client, 7, written);
			get(p.server, 0, UNREAD);
			assert_quiet(p.client);
			assert_quiet(p.server);
			repair_image_clear(&image);
			pair_close(&p);
		}
	}
}

static void a_busy_tuple_is_refused(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		struct repair_image image, other;
		struct pair p;
		int to = new_socket(f, SOCK_STREAM), elsewhere = bound(f, SOCK_STREAM);

		pair_open(&p, f);
		check(p.server, &image);
		/* B37: it lives here already */
		assert_int_equal(repair_claim(to, &image), -EADDRINUSE);
		assert_string_equal(image.step, "connect");
		freeze_and_extract(p.server, &other);
		assert_int_equal(repair_claim(to, &image), -EADDRINUSE);
		assert_int_equal(repair_restore(to, &other), -EADDRINUSE);
		repair_discard(to);
		close(to);
		/* bound to something else, by whoever lent it */
		assert_int_equal(repair_claim(elsewhere, &image), -EADDRINUSE);
		close(elsewhere);
		works(repair_unfreeze(p.server, &other), &other);
		assert_int_equal(put(p.server, 0, 100), 100);
		get(p.client, 0, 100);
		assert_quiet(p.client);
		repair_image_clear(&other);
		pair_close(&p);
	}
}

static void what_happens_after_the_extract_is_seen(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		struct repair_image image;
		struct pair p;

		pair_open(&p, f);
		freeze_and_extract(p.server, &image);
		assert_int_equal(put(p.client, 0, 1), 1);
		assert_int_equal(repair_arrived(p.server, &image), 1);
		repair_image_clear(&image);
		works(repair_unfreeze(p.server, &image), &image);
		get(p.server, 0, 1);
		pair_close(&p);

		pair_open(&p, f);
		freeze_and_extract(p.server, &image);
		deafen(p.client, true);
		shutdown(p.server, SHUT_WR); /* by the application, against the contract */
		assert_int_equal(repair_arrived(p.server, &image), 1);
		repair_image_clear(&image);
		pair_close(&p);
	}
}

static bool has_five(const struct tcp_info *info)
{
	return info->tcpi_bytes_received >= 5;
}

/* SIOCINQ counts up to the urgent octet: without a check the rest would be gone. */
static void urgent_data_is_refused(void **state)
{
	(void)state;
	for (enum family f = V4; f < FAMILIES; f++) {
		for (int inlined = 0; inlined < 2; inlined++) {
			struct repair_image image;
			struct pair p;
			char buf[8];
			int r;

			pair_open(&p, f);
			set_option(p.server, SOL_SOCKET, SO_OOBINLINE, inlined);
			assert_int_equal(send(p.client, "ab", 2, 0), 2);
			assert_int_equal(send(p.client, "!", 1, MSG_OOB), 1);
			assert_int_equal(send(p.client, "cd", 2, 0), 2);
			assert_true(ready(p.server, POLLPRI));
			wait_info(p.server, has_five);
			check(p.server, &image);
			works(repair_freeze(p.server, &image), &image);
			r = repair_extract(p.server, &image);
			printf("%s, inline %d: %s: %s\n", family_names[f], inlined, image.step,
			       strerror(-r));
			assert_int_equal(r, inlined ? -EBUSY : -ENODATA);
			works(repair_unfreeze(p.server, &image), &image);
			assert_int_equal(option(p.server, SOL_SOCKET, SO_OOBINLINE), inlined);
			assert_int_equal(recv(p.server, buf, sizeof(buf), 0), 2);
			assert_int_equal(recv(p.server, buf, sizeof(buf), 0), inlined ? 3 : 2);
			/* read: it can move */
			repair_image_clear(&image);
			freeze_and_extract(p.server, &image);
			assert_int_equal(image.inq, 0);
			works(repair_unfreeze(p.server, &image), &image);
			repair_image_clear(&image);
			pair_close(&p);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_to_another_socket),
		cmocka_unit_test(moves_again_and_again),
		cmocka_unit_test(an_abort_leaves_it_as_it_was),
		cmocka_unit_test(a_busy_tuple_is_refused),
		cmocka_unit_test(what_happens_after_the_extract_is_seen),
		cmocka_unit_test(urgent_data_is_refused),
	};

	return cmocka_run_group_tests(tests, own_namespace, NULL);
}
