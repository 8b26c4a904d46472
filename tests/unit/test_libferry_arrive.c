/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libferry at a destination, against an agent of the test's own: sockets are lent, filled (here:
 * connected to the test), and handed over with state, unsent octets and datagrams. Then bundles
 * that are not whole, an agent that ends at any point, and messages of any octets: no crash, no
 * descriptor left, no connection that goes on with octets missing.
 */
#include "fake_agent.h"

struct app {
	struct agent agent;
	struct ferry *f;
	bool withdraw;
	unsigned int arrived, others;
	char state[32], role[16];
	int fds[3];
	unsigned int count;
	char datagrams[4][8];
	ssize_t sizes[4];
	struct sockaddr_storage from[4];
	unsigned int before;
	int tcp[2], listeners[2]; /* the clients' ends */
};

static void on_other(struct ferry_unit *u, void *arg)
{
	(void)u;
	((struct app *)arg)->others++;
}

static void on_reason(struct ferry_unit *u, const char *reason, void *arg)
{
	(void)reason;
	on_other(u, arg);
}

static void on_arrived(struct ferry_unit *u, void *arg)
{
	struct app *app = arg;
	size_t size = 99;
	const void *state = ferry_unit_state(u, &size);

	app->arrived++;
	snprintf(app->state, sizeof(app->state), "%.*s", (int)size, (const char *)state);
	snprintf(app->role, sizeof(app->role), "%s", ferry_unit_role(u, 2));
	app->count = ferry_unit_count(u);
	for (unsigned int i = 0; i < app->count && i < N(app->fds); i++)
		app->fds[i] = ferry_unit_fd(u, i);
	for (int i = 0; i < 4; i++)
		app->sizes[i] = ferry_unit_datagram(u, 2, app->datagrams[i], 8, &app->from[i]);
	assert_int_equal(ferry_unit_datagram(u, 0, app->datagrams[3], 8, NULL), -EAGAIN);
	assert_int_equal(ferry_unit_datagram(u, 99, app->datagrams[3], 8, NULL), -EINVAL);
	if (app->withdraw)
		ferry_withdraw(u);
}

static const struct ferry_ops ops = { on_reason, on_other, on_reason, on_other, on_arrived, NULL };

static void start(struct app *app)
{
	memset(app, 0, sizeof(*app));
	app->before = descriptors();
	app->tcp[0] = app->tcp[1] = app->listeners[0] = app->listeners[1] = -1;
	agent_open(&app->agent);
	assert_int_equal(agent_meet(&app->agent, &app->f, &ops, app), 0);
}

static void end(struct app *app)
{
	for (unsigned int i = 0; app->arrived && i < app->count && i < N(app->fds); i++)
		close(app->fds[i]);
	ferry_close(app->f);
	agent_close(&app->agent);
	for (int i = 0; i < 2; i++) {
		if (app->listeners[i] >= 0)
			close(app->listeners[i]);
		if (app->tcp[i] >= 0)
			close(app->tcp[i]);
	}
	assert_int_equal(descriptors(), app->before);
}

/* What repair does for an agent: the lent socket is connected afterwards. */
static void fill(struct app *app, int i, int fd)
{
	struct sockaddr_storage ss = { .ss_family = i ? AF_INET6 : AF_INET };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;
	socklen_t size = i ? sizeof(*in6) : sizeof(*in);
	int l = app->listeners[i] = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in->sin_addr.s_addr = i ? 0 : htonl(INADDR_LOOPBACK);
	if (i)
		in6->sin6_addr = in6addr_loopback;
	assert_int_equal(bind(l, (struct sockaddr *)&ss, size), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&ss, &size), 0);
	assert_true(!connect(fd, (struct sockaddr *)&ss, size) || errno == EINPROGRESS);
	app->tcp[i] = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(app->tcp[i] >= 0);
}

/* Three sockets are lent; the memfd stays as agent.fds[0] of the first message, kept in *bundle. */
static void lent(struct app *app, int *bundle)
{
	static const int families[] = { AF_INET, AF_INET6, AF_INET };
	int domain, type;
	socklen_t size = sizeof(int);

	lend_request(&app->agent, 7, 3);
	assert_int_equal(ferry_dispatch(app->f), 0);
	expect(&app->agent, FERRY_APP_BUNDLE);
	assert_int_equal(app->agent.m.id, 7);
	assert_int_equal(app->agent.n, 1);
	*bundle = dup(app->agent.fds[0]);
	expect(&app->agent, FERRY_APP_LENT);
	assert_int_equal(app->agent.m.result, 0);
	assert_int_equal(app->agent.n, 3);
	for (int i = 0; i < 3; i++) {
		getsockopt(app->agent.fds[i], SOL_SOCKET, SO_DOMAIN, &domain, &size);
		getsockopt(app->agent.fds[i], SOL_SOCKET, SO_TYPE, &type, &size);
		assert_int_equal(domain, families[i]);
		assert_int_equal(type, i == 2 ? SOCK_DGRAM : SOCK_STREAM);
	}
	fill(app, 0, app->agent.fds[0]);
	fill(app, 1, app->agent.fds[1]);
}

/* header, sockets, state, unsent of 0 and 1, two datagrams */
struct bundle {
	struct ferry_bundle b;
	struct ferry_bundle_socket s[3];
	char state[8], unsent[2][8];
	struct ferry_bundle_datagram d1;
	char data1[8];
	struct ferry_bundle_datagram d2;
	char data2[16];
};

static struct bundle good(void)
{
	struct bundle b = {
		.b = { FERRY_BUNDLE_MAGIC, 3, {}, {}, offsetof(struct bundle, state), 5 },
		.state = "state",
		.unsent = { "unsent4", "unsent6" },
		.d1 = { { [10] = 0xff, 0xff, 127, 0, 0, 9 }, htons(1234), 0, 3 },
		.data1 = "one",
		.d2 = { { [10] = 0xff, 0xff, 127, 0, 0, 8 }, htons(5), 0, 12 },
		.data2 = "twelveoctets",
	};

	for (int i = 0; i < 3; i++) {
		strcpy(b.s[i].role, "arrived0"), b.s[i].role[7] = (char)(0x30 + i);
		b.s[i].unsent = i < 2 ? 7 : 0;
		b.s[i].unsent_at = i < 2 ? offsetof(struct bundle, unsent) + 8 * (size_t)i : 0;
	}
	b.s[2].datagrams = 2;
	b.s[2].datagrams_at = offsetof(struct bundle, d1);
	return b;
}

static void a_unit_arrives(void **state)
{
	(void)state;
	for (int withdraw = 0; withdraw < 2; withdraw++) {
		struct bundle b = good();
		struct app app;
		char buf[16] = "";
		int bundle;

		start(&app);
		app.withdraw = withdraw;
		lent(&app, &bundle);
		assert_int_equal(pwrite(bundle, &b, sizeof(b), 0), sizeof(b));
		close(bundle);
		say(&app.agent, FERRY_APP_GO, 7, "");
		say(&app.agent, FERRY_APP_GO, 7, ""); /* "go" may be repeated */
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, 1);
		assert_int_equal(app.count, 3);
		assert_string_equal(app.state, "state");
		assert_string_equal(app.role, "arrived2");
		for (int i = 0; i < 2; i++) {
			struct pollfd p = { app.tcp[i], POLLIN, 0 };

			assert_int_equal(poll(&p, 1, 1000), 1);
			assert_int_equal(recv(app.tcp[i], buf, sizeof(buf), 0), 7);
			assert_string_equal(buf, b.unsent[i]);
			assert_true(fcntl(app.fds[i], F_GETFL) & O_NONBLOCK);
			assert_true(fcntl(app.fds[i], F_GETFD) & FD_CLOEXEC);
		}
		assert_int_equal(app.sizes[0], 3);
		assert_memory_equal(app.datagrams[0], "one", 3);
		assert_int_equal(((struct sockaddr_in *)&app.from[0])->sin_family, AF_INET);
		assert_int_equal(((struct sockaddr_in *)&app.from[0])->sin_port, htons(1234));
		assert_int_equal(app.sizes[1], 8); /* cut */
		assert_memory_equal(app.datagrams[1], "twelveoc", 8);
		assert_int_equal(app.sizes[2], -EAGAIN);
		if (withdraw)
			expect(&app.agent, FERRY_APP_WITHDRAW);
		else
			assert_false(heard(&app.agent));
		end(&app);
	}
}

#define BUNDLES(X)                                                                                 \
	X("no octets", size = 0)                                                                   \
	X("half a header", size = 20)                                                              \
	X("no sockets", size = sizeof(b.b))                                                        \
	X("cut in the state", size = offsetof(struct bundle, state) + 2)                           \
	X("cut in what was unsent", size = offsetof(struct bundle, unsent) + 9)                    \
	X("another magic", b.b.magic++)                                                            \
	X("another count", b.b.count++)                                                            \
	X("state behind the end", b.b.state_at = sizeof(b) + 1)                                    \
	X("state larger than all", b.b.state_size = sizeof(b))                                     \
	X("state of 2^64 - 1", b.b.state_size = UINT64_MAX)                                        \
	X("state that wraps", b.b.state_at = UINT64_MAX - 2)                                       \
	X("unsent behind the end", b.s[0].unsent_at = sizeof(b) - 1)                               \
	X("unsent that wraps", b.s[1].unsent_at = UINT64_MAX - 3)                                  \
	X("unsent of 4 GB", b.s[1].unsent = UINT32_MAX)

static const char *const bundles[] = {
#define X(name, change) name,
	BUNDLES(X)
#undef X
};

static void a_bundle_that_is_not_whole(void **state)
{
	(void)state;
	for (unsigned int row = 0; row < N(bundles); row++) {
		struct bundle b = good();
		size_t size = sizeof(b);
		unsigned int n = 0;
		struct app app;
		int bundle;
		char c;

#define X(name, change)                                                                            \
	if (n++ == row)                                                                            \
		change;
		BUNDLES(X)
#undef X
		printf("%s\n", bundles[row]);
		start(&app);
		lent(&app, &bundle);
		assert_int_equal(pwrite(bundle, &b, size, 0), size);
		close(bundle);
		say(&app.agent, FERRY_APP_GO, 7, "");
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, 0);
		/* its connections end, and the agent hears of it */
		expect(&app.agent, FERRY_APP_WITHDRAW);
		for (int i = 0; i < 2; i++) {
			struct pollfd p = { app.tcp[i], POLLIN, 0 };

			assert_int_equal(poll(&p, 1, 1000), 1);
			assert_int_equal(recv(app.tcp[i], &c, 1, 0), -1);
			assert_int_equal(errno, ECONNRESET);
		}
		end(&app);
	}
}

/* Those are looked at as they are taken: what is not whole is no datagram. */
static void datagrams_that_are_not_whole(void **state)
{
	(void)state;
	for (int row = 0; row < 5; row++) {
		struct bundle b = good();
		struct app app;
		int bundle;

		b.s[2].datagrams = row == 4 ? UINT32_MAX : 2;
		if (row < 3)
			b.s[2].datagrams_at = (uint64_t[]){ sizeof(b) - 8, UINT64_MAX - 7,
							    offsetof(struct bundle, d1) + 1 }[row];
		if (row == 3)
			b.d1.size = UINT32_MAX;
		start(&app);
		lent(&app, &bundle);
		assert_int_equal(pwrite(bundle, &b, sizeof(b), 0), sizeof(b));
		close(bundle);
		say(&app.agent, FERRY_APP_GO, 7, "");
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, 1);
		assert_int_equal(app.sizes[0], row == 4 ? 3 : -EAGAIN);
		end(&app);
	}
}

static void lent_in_vain(void **state)
{
	struct app app;
	int bundle;

	(void)state;
	start(&app);
	lent(&app, &bundle);
	close(bundle);
	say(&app.agent, FERRY_APP_DISCARD, 8, ""); /* another request */
	say(&app.agent, FERRY_APP_DISCARD, 7, "");
	say(&app.agent, FERRY_APP_GO, 7, "");
	assert_int_equal(ferry_dispatch(app.f), 0);
	assert_int_equal(app.arrived, 0);
	lend_request(&app.agent, 9, 0);
	assert_int_equal(ferry_dispatch(app.f), 0);
	expect(&app.agent, FERRY_APP_LENT);
	assert_true(app.agent.m.result < 0);
	end(&app);
}

/* After step messages of an arrival the agent is gone, with all that it held. */
static void the_agent_ends_at_any_point(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		struct bundle b = good();
		struct app app;
		int bundle;

		start(&app);
		if (step > 0) {
			lent(&app, &bundle);
			if (step > 1)
				assert_int_equal(pwrite(bundle, &b, sizeof(b), 0), sizeof(b));
			close(bundle);
		}
		if (step > 2)
			say(&app.agent, FERRY_APP_GO, 7, "");
		drop_fds(&app.agent);
		close(app.agent.fd);
		app.agent.fd = -1;
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, step > 2);
		end(&app);
	}
}

static void any_octets(void **state)
{
	uint32_t seed = 11;

	(void)state;
	for (int turn = 0; turn < 300; turn++) {
		struct ferry_unit *u;
		struct app app;

		start(&app);
		assert_int_equal(ferry_offer(app.f, &(int){ 0 }, NULL, 1, NULL, &u), 0);
		for (int i = 0; i < 30; i++) {
			uint32_t words[200] = {}, n;

			for (uint32_t k = 0; k < N(words); k++)
				words[k] = seed = seed * 1664525 + 1013904223;
			n = i % 5 ? 72 : seed >> 8 & 0x1ff;
			words[0] = (seed >> 16 & 31) | FERRY_APP_VERSION << 16;
			words[1] = seed >> 21 & 3; /* a handle that there is */
			if (i % 2)
				words[4] = seed >> 23 & 7;
			if (send(app.agent.fd, words, n, MSG_NOSIGNAL) < 0)
				break;
			if (ferry_dispatch(app.f))
				break;
			while (heard(&app.agent))
				;
		}
		app.arrived = 0; /* an empty bundle cannot have */
		end(&app);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_unit_arrives),
		cmocka_unit_test(a_bundle_that_is_not_whole),
		cmocka_unit_test(datagrams_that_are_not_whole),
		cmocka_unit_test(lent_in_vain),
		cmocka_unit_test(the_agent_ends_at_any_point),
		cmocka_unit_test(any_octets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
