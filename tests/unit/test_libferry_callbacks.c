/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libferry used from within its own callbacks, each call in each of them; with thousands of units
 * when an agent comes back; and with agents that do not let it in at once. The invariant: nothing is
 * used after it was freed (the tree with sanitizers), every unit that is held is told once, and no
 * descriptor stays behind.
 */
#include <sys/resource.h>
#include <sys/wait.h>
#include "fake_agent.h"
#include "lib/lib.h"

enum where {
	NOWHERE,
	IN_OFFERED,
	IN_QUIESCE,
	IN_ABORTED,
	IN_COMMITTED,
	IN_ARRIVED,
	IN_LOST,
	IN_CONNECTED,
	WHERES
};
enum what { WITHDRAW_IT, WITHDRAW_OTHER, WITHDRAW_BOTH, OFFER, READY, REFUSE, WHATS };

struct app {
	struct agent agent;
	struct ferry *f;
	struct ferry_unit *it, *other, *more;
	enum where where;
	enum what what;
	int fd, calls[WHERES];
	unsigned int before;
};

static void withdraw(struct ferry_unit **u)
{
	if (*u)
		ferry_withdraw(*u);
	*u = NULL;
}

static void act(struct app *app, enum where here, struct ferry_unit *u)
{
	app->calls[here]++;
	if (here != app->where || app->calls[here] > 1)
		return;
	if (u && u != app->other && app->it != u)
		app->it = u; /* one that arrived */
	if (app->what == WITHDRAW_OTHER || app->what == WITHDRAW_BOTH)
		withdraw(&app->other);
	if (app->what == WITHDRAW_IT || app->what == WITHDRAW_BOTH)
		withdraw(&app->it);
	if (app->what == OFFER)
		assert_int_equal(ferry_offer(app->f, &app->fd, NULL, 1, NULL, &app->more), 0);
	if (app->what == READY && app->it)
		ferry_ready(app->it, "x", 1);
	if (app->what == REFUSE && app->it)
		ferry_refuse(app->it);
}

static void on_offered(struct ferry_unit *u, const char *reason, void *arg)
{
	struct app *app = arg;

	act(app, IN_OFFERED, u);
	if (reason && u == app->it)
		app->it = NULL;
	if (reason && u == app->other)
		app->other = NULL;
	if (reason && u == app->more)
		app->more = NULL;
}

static void on_quiesce(struct ferry_unit *u, void *arg)
{
	act(arg, IN_QUIESCE, u);
}

static void on_aborted(struct ferry_unit *u, const char *reason, void *arg)
{
	(void)reason;
	act(arg, IN_ABORTED, u);
}

static void on_committed(struct ferry_unit *u, void *arg)
{
	struct app *app = arg;

	act(app, IN_COMMITTED, u);
	if (app->it == u)
		app->it = NULL;
}

static void on_arrived(struct ferry_unit *u, void *arg)
{
	close(ferry_unit_fd(u, 0));
	act(arg, IN_ARRIVED, u);
}

static void on_connected(int error, void *arg)
{
	act(arg, error ? IN_LOST : IN_CONNECTED, NULL);
}

static const struct ferry_ops ops = { on_offered,   on_quiesce, on_aborted,
				      on_committed, on_arrived, on_connected };

static void start(struct app *app)
{
	memset(app, 0, sizeof(*app));
	app->before = descriptors();
	agent_open(&app->agent);
	assert_int_equal(agent_meet(&app->agent, &app->f, &ops, app), 0);
	app->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void end(struct app *app)
{
	ferry_close(app->f);
	if (app->fd >= 0)
		close(app->fd);
	agent_close(&app->agent);
	assert_int_equal(descriptors(), app->before);
}

static uint32_t offer(struct app *app, struct ferry_unit **u)
{
	assert_int_equal(ferry_offer(app->f, &app->fd, NULL, 1, NULL, u), 0);
	expect(&app->agent, FERRY_APP_OFFER);
	return app->agent.m.id;
}

static void drain(struct app *app)
{
	while (app->agent.fd >= 0 && heard(&app->agent))
		;
	drop_fds(&app->agent);
}

static void arrive(struct app *app)
{
	struct ferry_app_message m = { .type = FERRY_APP_GO, .version = FERRY_APP_VERSION };
	struct ferry_bundle head = { .magic = FERRY_BUNDLE_MAGIC, .count = 1 };
	struct ferry_bundle_socket s = {};

	lend_request(&app->agent, 7, 1);
	assert_int_equal(ferry_dispatch(app->f), 0);
	expect(&app->agent, FERRY_APP_BUNDLE);
	head.state_at = sizeof(head) + sizeof(s);
	assert_int_equal(pwrite(app->agent.fds[0], &head, sizeof(head), 0), sizeof(head));
	assert_int_equal(pwrite(app->agent.fds[0], &s, sizeof(s), sizeof(head)), sizeof(s));
	expect(&app->agent, FERRY_APP_LENT);
	m.id = 7;
	m.handle = app->agent.m.handle;
	send_raw(&app->agent, &m, sizeof(m));
	assert_int_equal(ferry_dispatch(app->f), 0);
}

/* What leads to the callback. */
static void lead_to(struct app *app, enum where where, uint32_t id)
{
	bool moves = where == IN_QUIESCE || where == IN_ABORTED || where == IN_COMMITTED;

	if (where != IN_OFFERED) {
		say(&app->agent, FERRY_APP_OFFERED, id, "");
		say(&app->agent, FERRY_APP_OFFERED, id + 1, "");
	}
	if (moves) {
		say(&app->agent, FERRY_APP_BORROW, id, "");
		say(&app->agent, FERRY_APP_QUIESCE, id, "");
		assert_int_equal(ferry_dispatch(app->f), 0);
	}
	if (where == IN_OFFERED)
		say(&app->agent, FERRY_APP_OFFERED, id, "");
	else if (where == IN_ABORTED)
		say(&app->agent, FERRY_APP_ABORTED, id, "x");
	else if (where == IN_COMMITTED)
		say(&app->agent, FERRY_APP_COMMITTED, id, "");
	else if (where == IN_ARRIVED)
		arrive(app);
	assert_int_equal(ferry_dispatch(app->f), 0);
	drain(app);
	if (where == IN_LOST || where == IN_CONNECTED)
		agent_restarts(&app->agent, app->f);
}

static void every_call_in_every_callback(void **state)
{
	(void)state;
	for (int i = 0; i < (WHERES - 1) * WHATS * 3; i++) {
		/* then: nothing, another agent, a descriptor that is none any more and another one */
		int then = i % 3;
		struct app app;
		uint32_t id;

		start(&app);
		app.where = i / 3 / WHATS + 1;
		app.what = i / 3 % WHATS;
		id = offer(&app, &app.it);
		offer(&app, &app.other);
		lead_to(&app, app.where, id);
		if (app.calls[app.where] < 1)
			fail_msg("callback %d was not made", app.where);
		drain(&app);
		if (then == 2) {
			close(app.fd);
			app.fd = -1;
		}
		if (then)
			agent_restarts(&app.agent, app.f);
		drain(&app);
		say(&app.agent, FERRY_APP_OFFERED, id, "");
		say(&app.agent, FERRY_APP_ABORTED, id, "x");
		say(&app.agent, FERRY_APP_OFFERED, id + 1, "no-memory");
		assert_int_equal(ferry_dispatch(app.f), 0);
		end(&app);
	}
}

#define MANY 3000

/* The socket takes some hundred messages: the rest follows as the agent reads, each once. */
static void thousands_at_a_reconnect(void **state)
{
	static struct ferry_unit *units[MANY];
	static unsigned int told[MANY + 1];
	unsigned int resumed = 0, withdrawn = 0, stops = 0;
	struct app app;

	(void)state;
	memset(told, 0, sizeof(told));
	start(&app);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(ferry_offer(app.f, &app.fd, NULL, 1, NULL, &units[i]), 0);
		expect(&app.agent, FERRY_APP_OFFER);
		say(&app.agent, FERRY_APP_OFFERED, app.agent.m.id, "");
		assert_int_equal(ferry_dispatch(app.f), 0);
	}
	agent_restarts(&app.agent, app.f);
	for (int turn = 0;; turn++) {
		struct pollfd p = { ferry_fd(app.f), POLLIN, 0 };
		unsigned int now = 0;

		while (heard(&app.agent)) {
			if (app.agent.m.type == FERRY_APP_WITHDRAW)
				continue;
			assert_int_equal(app.agent.m.type, FERRY_APP_RESUME);
			assert_in_range(app.agent.m.id, 1, MANY);
			assert_int_equal(app.agent.n, 1);
			assert_int_equal(told[app.agent.m.id]++, 0);
			now++;
		}
		resumed += now;
		stops += now != 0;
		if (turn == 1) /* not told yet: the oldest are told last */
			for (int i = 0; i < 10; i++, withdrawn++)
				ferry_withdraw(units[i]);
		if (resumed + withdrawn == MANY)
			break;
		if (poll(&p, 1, 3000) != 1)
			fail_msg("%u of %u were told, and nothing more follows", resumed, MANY);
		assert_int_equal(ferry_dispatch(app.f), 0);
	}
	assert_int_equal(withdrawn, 10);
	assert_int_equal(resumed, MANY - 10);
	assert_true(stops > 2); /* it was behind */
	end(&app);
}

/* As many descriptors of this user are under way as may be: it is told later. */
static int too_many_under_way(void)
{
	struct rlimit limit = { 40, 4096 };
	int pair[2], n = 0;
	struct app app;
	struct pollfd p = { .events = POLLIN };
	uint32_t id;

	start(&app);
	id = offer(&app, &app.it);
	say(&app.agent, FERRY_APP_OFFERED, id, "");
	assert_int_equal(ferry_dispatch(app.f), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	/* agent_restarts(), but between HELLO and WELCOME others of this user are quicker */
	drop_fds(&app.agent);
	close(app.agent.fd);
	p.fd = app.agent.listener;
	while (poll(&p, 1, 0) != 1)
		ferry_dispatch(app.f);
	app.agent.fd = accept4(app.agent.listener, NULL, NULL, SOCK_CLOEXEC);
	expect(&app.agent, FERRY_APP_HELLO);
	for (struct ferry other = { .fd = pair[0] };; n++) {
		struct ferry_app_message m = {};

		if (lib_send(&other, &m, sizeof(m), &app.fd, 1))
			break;
	}
	assert_int_equal(errno, ETOOMANYREFS);
	say(&app.agent, FERRY_APP_WELCOME, 0, "");
	assert_int_equal(ferry_dispatch(app.f), 0);
	assert_int_equal(app.calls[IN_CONNECTED], 1);
	assert_false(heard(&app.agent));
	close(pair[0]);
	close(pair[1]); /* and what was under way */
	p.fd = ferry_fd(app.f);
	for (int i = 0; i < 30 && poll(&p, 1, 1000) == 1; i++) {
		assert_int_equal(ferry_dispatch(app.f), 0);
		if (!heard(&app.agent))
			continue;
		assert_int_equal(app.agent.m.type, FERRY_APP_RESUME);
		assert_int_equal(app.agent.m.id, id);
		assert_int_equal(poll(&p, 1, 300), 0); /* and then no more of it */
		end(&app);
		return n;
	}
	fail_msg("it was never told");
	return 0;
}

static void as_somebody_without_rights(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		/* root's descriptors under way are not counted */
		if (setresgid(64898, 64898, 64898) || setresuid(64898, 64898, 64898))
			_exit(2);
		_exit(too_many_under_way() > 10 ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* It is not let in for a while, by answers or by silence; then it is, and its unit is told. */
static void let_in_at_last(void **state)
{
	static const int32_t answers[] = { -EACCES, -EEXIST, -EPROTO, -EAGAIN, 1, 0 };
	struct app app;
	uint32_t id;

	(void)state;
	start(&app);
	id = offer(&app, &app.it);
	say(&app.agent, FERRY_APP_OFFERED, id, "");
	assert_int_equal(ferry_dispatch(app.f), 0);
	for (size_t i = 0; i < N(answers); i++) {
		struct ferry_app_message m = { .type = FERRY_APP_WELCOME,
					       .version = FERRY_APP_VERSION,
					       .result = answers[i] };
		struct pollfd p = { ferry_fd(app.f), POLLIN, 0 };
		struct pollfd q = { app.agent.listener, POLLIN, 0 };

		drop_fds(&app.agent);
		close(app.agent.fd);
		while (poll(&q, 1, 0) != 1) {
			assert_int_equal(poll(&p, 1, 3000), 1);
			assert_int_equal(ferry_dispatch(app.f), 0);
		}
		app.agent.fd = accept4(app.agent.listener, NULL, NULL, SOCK_CLOEXEC);
		expect(&app.agent, FERRY_APP_HELLO);
		send_raw(&app.agent, &m, sizeof(m));
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.calls[IN_CONNECTED], answers[i] == 0);
	}
	expect(&app.agent, FERRY_APP_RESUME);
	assert_int_equal(app.agent.m.id, id);
	end(&app);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_in_every_callback),
		cmocka_unit_test(thousands_at_a_reconnect),
		cmocka_unit_test(as_somebody_without_rights),
		cmocka_unit_test(let_in_at_last),
	};

	return cmocka_run_group_tests_name("libferry, callbacks", tests, NULL, NULL);
}
