/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libferry (include/ferry.h) against an agent of the test's own: registering, offering, and each
 * way of a unit that moves away, with a withdrawal inside each callback. However it goes, no
 * descriptor and no memory stays behind.
 */
#include "fake_agent.h"

enum { OFFERED = 1, QUIESCE, ABORTED, COMMITTED, ARRIVED, CONNECTED, LOST };

struct app {
	struct agent agent;
	struct ferry *f;
	struct ferry_unit *u;
	int withdraw_in; /* that callback */
	bool later;      /* quiesce() does not answer */
	int calls[LOST + 1];
	char reason[32];
	unsigned int before; /* descriptors */
};

static void called(struct app *app, struct ferry_unit *u, int which)
{
	app->calls[which]++;
	app->u = u;
	if (app->withdraw_in == which)
		ferry_withdraw(u);
}

static void on_offered(struct ferry_unit *u, const char *reason, void *arg)
{
	struct app *app = arg;

	snprintf(app->reason, sizeof(app->reason), "%s", reason ? reason : "");
	called(app, u, OFFERED);
}

static void on_quiesce(struct ferry_unit *u, void *arg)
{
	struct app *app = arg;

	called(app, u, QUIESCE);
	if (!app->later && app->withdraw_in != QUIESCE)
		assert_int_equal(ferry_ready(u, "state", 5), 0);
}

static void on_aborted(struct ferry_unit *u, const char *reason, void *arg)
{
	snprintf(((struct app *)arg)->reason, 32, "%s", reason);
	called(arg, u, ABORTED);
}

static void on_committed(struct ferry_unit *u, void *arg)
{
	called(arg, u, COMMITTED);
}

static void on_arrived(struct ferry_unit *u, void *arg)
{
	called(arg, u, ARRIVED);
}

static void on_connected(int error, void *arg)
{
	struct app *app = arg;

	app->calls[error ? LOST : CONNECTED]++;
}

static const struct ferry_ops ops = { on_offered,   on_quiesce, on_aborted,
				      on_committed, on_arrived, on_connected };

static void start(struct app *app)
{
	memset(app, 0, sizeof(*app));
	app->before = descriptors();
	agent_open(&app->agent);
	assert_int_equal(agent_meet(&app->agent, &app->f, &ops, app), 0);
	assert_string_equal(app->agent.m.text, "kind");
}

static void end(struct app *app)
{
	ferry_close(app->f);
	agent_close(&app->agent);
	assert_int_equal(descriptors(), app->before);
}

static void offer(struct app *app, int fds[2])
{
	static const char *const roles[] = { "control", "0123456789abcde" };

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(ferry_offer(app->f, fds, roles, 2, &app->f, &app->u), 0);
	expect(&app->agent, FERRY_APP_OFFER);
	assert_int_equal(app->agent.m.count, 2);
	assert_int_equal(app->agent.n, 2);
	assert_string_equal(app->agent.sockets[1].role, roles[1]);
	assert_string_equal(ferry_unit_role(app->u, 0), "control");
	assert_ptr_equal(ferry_unit_data(app->u), &app->f);
}

/* Up to READY; the unit's handle. */
static uint32_t quiesced(struct app *app, int fds[2])
{
	uint32_t id;
	char state[8] = "";

	offer(app, fds);
	id = app->agent.m.id;
	say(&app->agent, FERRY_APP_OFFERED, id, "");
	say(&app->agent, FERRY_APP_BORROW, id, "");
	say(&app->agent, FERRY_APP_QUIESCE, id, "");
	assert_int_equal(ferry_dispatch(app->f), 0);
	if (app->withdraw_in == OFFERED) {
		expect(&app->agent, FERRY_APP_WITHDRAW);
		return id;
	}
	expect(&app->agent, FERRY_APP_SOCKETS_ARE);
	assert_int_equal(app->agent.n, 2);
	if (app->withdraw_in == QUIESCE) {
		expect(&app->agent, FERRY_APP_WITHDRAW);
		return id;
	}
	expect(&app->agent, FERRY_APP_READY);
	assert_int_equal(app->agent.m.size, 5);
	assert_int_equal(app->agent.n, 1);
	assert_int_equal(pread(app->agent.fds[0], state, sizeof(state), 0), 5);
	assert_string_equal(state, "state");
	return id;
}

static void greetings(void **state)
{
	static const struct {
		const char *name;
		int mood;
		int32_t says;
		int result;
	} rows[] = {
		{ "welcome", GOOD, 0, 0 },
		{ "kind is taken", GOOD, -EEXIST, -EEXIST },
		{ "another version", GOOD, -EPROTO, -EPROTO },
		{ "a result that is none", GOOD, 7, -EPROTO },
		{ "silent", SILENT, 0, -ETIMEDOUT },
		{ "closes", CLOSES, 0, -EPROTO },
		{ "cut short", SHORT, 0, -EPROTO },
		{ "something else", GARBAGE, 0, -EPROTO },
	};
	struct ferry *f;

	(void)state;
	for (size_t i = 0; i < N(rows); i++) {
		unsigned int before = descriptors();
		struct agent a;

		agent_open(&a);
		a.mood = rows[i].mood, a.result = rows[i].says;
		printf("%s\n", rows[i].name);
		assert_int_equal(agent_meet(&a, &f, &ops, NULL), rows[i].result);
		if (!rows[i].result)
			ferry_close(f);
		agent_close(&a);
		assert_int_equal(descriptors(), before);
	}
	assert_int_equal(ferry_open(&f, "/nowhere/agent.sock", "k", &ops, NULL), -ENOENT);
	assert_int_equal(ferry_open(&f, "/tmp", "", &ops, NULL), -EINVAL);
	assert_int_equal(ferry_open(&f, "/tmp", "01234567890123456789012345678901", &ops, NULL),
			 -EINVAL);
}

/* An agent that accepts nobody: its backlog is full. */
static void a_stopped_agent(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	unsigned int before = descriptors();
	struct agent a;
	struct ferry *f;
	int waiting[4];

	(void)state;
	agent_open(&a);
	strcpy(un.sun_path, a.path);
	for (size_t i = 0; i < N(waiting); i++) {
		waiting[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		connect(waiting[i], (struct sockaddr *)&un, sizeof(un));
	}
	assert_int_equal(ferry_open(&f, a.path, "k", &ops, NULL), -ETIMEDOUT);
	for (size_t i = 0; i < N(waiting); i++)
		close(waiting[i]);
	agent_close(&a);
	assert_int_equal(descriptors(), before);
}

static void offers_and_moves_away(void **state)
{
	static const uint16_t ends[] = { FERRY_APP_COMMITTED, FERRY_APP_ABORTED };

	(void)state;
	for (size_t e = 0; e < N(ends); e++) {
		for (int inside = 0; inside <= COMMITTED; inside++) {
			struct app app;
			int fds[2];
			uint32_t id;

			start(&app);
			app.withdraw_in = inside;
			id = quiesced(&app, fds);
			say(&app.agent, ends[e], id, "timeout");
			say(&app.agent, ends[e], id, "timeout"); /* no more than once */
			assert_int_equal(ferry_dispatch(app.f), 0);
			if (inside != OFFERED && inside != QUIESCE)
				assert_int_equal(app.calls[e ? ABORTED : COMMITTED], 1);
			if (!inside && e) {
				assert_string_equal(app.reason, "timeout");
				assert_int_equal(ferry_ready(app.u, "", 0), -EINVAL);
				assert_int_equal(ferry_unit_uuid(app.u)[15], 0x55);
				ferry_withdraw(app.u);
			}
			close(fds[0]);
			close(fds[1]);
			end(&app);
		}
	}
}

static void a_refused_offer(void **state)
{
	(void)state;
	for (int inside = 0; inside <= OFFERED; inside++) {
		struct app app;
		int fds[2];

		start(&app);
		app.withdraw_in = inside;
		offer(&app, fds);
		say(&app.agent, FERRY_APP_OFFERED, app.agent.m.id, "flow-owned");
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_string_equal(app.reason, "flow-owned");
		close(fds[0]);
		close(fds[1]);
		end(&app);
	}
}

static void what_cannot_be_offered(void **state)
{
	int many[FERRY_SOCKETS_MAX + 1] = {};
	const char *long_role = "0123456789abcdef";
	struct app app;

	(void)state;
	start(&app);
	assert_int_equal(ferry_offer(app.f, many, NULL, 0, NULL, &app.u), -EINVAL);
	assert_int_equal(ferry_offer(app.f, many, NULL, N(many), NULL, &app.u), -EINVAL);
	assert_int_equal(ferry_offer(app.f, many, &long_role, 1, NULL, &app.u), -EINVAL);
	many[0] = 1000;
	assert_int_equal(ferry_offer(app.f, many, NULL, 1, NULL, &app.u), -EBADF);
	many[0] = 0;
	assert_int_equal(ferry_offer(app.f, many, NULL, FERRY_SOCKETS_MAX, NULL, &app.u), 0);
	expect(&app.agent, FERRY_APP_OFFER);
	assert_int_equal(app.agent.n, FERRY_SOCKETS_MAX);
	assert_int_equal(ferry_refuse(app.u), -EINVAL);
	assert_int_equal(ferry_unit_fd(app.u, FERRY_SOCKETS_MAX), -1);
	end(&app);
}

/* A socket that the application closed without a word costs the move, not the connection. */
static void a_closed_socket_is_borrowed(void **state)
{
	struct app app;
	int fds[2];

	(void)state;
	start(&app);
	offer(&app, fds);
	close(fds[1]);
	say(&app.agent, FERRY_APP_OFFERED, app.agent.m.id, "");
	say(&app.agent, FERRY_APP_BORROW, app.agent.m.id, "");
	assert_int_equal(ferry_dispatch(app.f), 0);
	expect(&app.agent, FERRY_APP_SOCKETS_ARE);
	assert_int_equal(app.agent.n, 0);
	close(fds[0]);
	end(&app);
}

/* An agent that does not read for a while is told all the same. */
static void withdrawals_are_not_lost(void **state)
{
	struct ferry_unit *units[1000];
	unsigned int told = 0, n = 0;
	struct app app;

	(void)state;
	start(&app);
	while (n < N(units)) {
		if (ferry_offer(app.f, &(int){ 0 }, NULL, 1, NULL, &units[n]) == -EAGAIN)
			while (heard(&app.agent))
				;
		else
			n++;
	}
	while (heard(&app.agent))
		;
	for (unsigned int i = 0; i < n; i++)
		ferry_withdraw(units[i]);
	for (int turn = 0; turn < 20; turn++) {
		while (heard(&app.agent))
			told += app.agent.m.type == FERRY_APP_WITHDRAW;
		assert_int_equal(ferry_dispatch(app.f), 0);
	}
	assert_int_equal(told, n);
	end(&app);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greetings),
		cmocka_unit_test(a_stopped_agent),
		cmocka_unit_test(offers_and_moves_away),
		cmocka_unit_test(a_refused_offer),
		cmocka_unit_test(what_cannot_be_offered),
		cmocka_unit_test(a_closed_socket_is_borrowed),
		cmocka_unit_test(withdrawals_are_not_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
