/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libferry when its agent ends and another one comes: in each state of a unit, what the new one is
 * told, and what each of its answers does. The invariant: however it goes, a unit ends or is in
 * use, its socket options are what they were, and no descriptor stays behind.
 */
#include <linux/netlink.h>
#include <linux/tcp.h>
#include "fake_agent.h"

struct app {
	struct agent agent;
	struct ferry *f;
	struct ferry_unit *u;
	int offered, aborted, committed, arrived, connected, lost;
	bool silent; /* quiesce() does not answer */
	char reason[32];
	int fd;
	unsigned int before;
};

static void on_offered(struct ferry_unit *u, const char *reason, void *arg)
{
	struct app *app = arg;

	app->offered++;
	app->u = u;
	snprintf(app->reason, sizeof(app->reason), "%s", reason ? reason : "");
}

static void on_quiesce(struct ferry_unit *u, void *arg)
{
	if (!((struct app *)arg)->silent)
		assert_int_equal(ferry_ready(u, "x", 1), 0);
}

static void on_aborted(struct ferry_unit *u, const char *reason, void *arg)
{
	struct app *app = arg;

	(void)u;
	app->aborted++;
	snprintf(app->reason, sizeof(app->reason), "%s", reason);
}

static void on_committed(struct ferry_unit *u, void *arg)
{
	(void)u;
	((struct app *)arg)->committed++;
}

static void on_arrived(struct ferry_unit *u, void *arg)
{
	struct app *app = arg;

	app->arrived++;
	close(ferry_unit_fd(u, 0));
}

static void on_connected(int error, void *arg)
{
	struct app *app = arg;

	if (error)
		app->lost++;
	else
		app->connected++;
}

static const struct ferry_ops ops = { on_offered,   on_quiesce, on_aborted,
				      on_committed, on_arrived, on_connected };

static void set(int fd, int level, int name, int value)
{
	assert_int_equal(setsockopt(fd, level, name, &value, sizeof(value)), 0);
}

static int get(int fd, int level, int name)
{
	int value = -77;
	socklen_t size = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
	return value;
}

static void start(struct app *app)
{
	memset(app, 0, sizeof(*app));
	app->before = descriptors();
	agent_open(&app->agent);
	assert_int_equal(agent_meet(&app->agent, &app->f, &ops, app), 0);
	app->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	set(app->fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(app->fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set(app->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 7000);
}

static void end(struct app *app)
{
	close(app->fd);
	ferry_close(app->f);
	agent_close(&app->agent);
	assert_int_equal(descriptors(), app->before);
}

enum { OFFERED, OURS, BORROWED, SILENT_QUIESCED, READY };

/* An offer that got as far; the unit's handle. */
static uint32_t bring(struct app *app, int stage)
{
	uint32_t id;

	assert_int_equal(ferry_offer(app->f, &app->fd, NULL, 1, NULL, &app->u), 0);
	expect(&app->agent, FERRY_APP_OFFER);
	id = app->agent.m.id;
	app->silent = stage == SILENT_QUIESCED;
	if (stage > OFFERED)
		say(&app->agent, FERRY_APP_OFFERED, id, "");
	if (stage > OURS)
		say(&app->agent, FERRY_APP_BORROW, id, "");
	if (stage > BORROWED)
		say(&app->agent, FERRY_APP_QUIESCE, id, "");
	assert_int_equal(ferry_dispatch(app->f), 0);
	if (stage == READY) { /* frozen */
		set(app->fd, SOL_SOCKET, SO_KEEPALIVE, 0);
		set(app->fd, SOL_SOCKET, SO_REUSEADDR, 0);
		set(app->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
	}
	return id;
}

static void what_a_new_agent_hears(void **state)
{
	static const struct {
		const char *name;
		int stage, type, was;
	} rows[] = {
		{ "an unanswered offer", OFFERED, FERRY_APP_OFFER, 0 },
		{ "a unit in use", OURS, FERRY_APP_RESUME, FERRY_RESUME_OURS },
		{ "one borrowed", BORROWED, FERRY_APP_RESUME, FERRY_RESUME_OURS },
		{ "one coming to rest", SILENT_QUIESCED, FERRY_APP_RESUME, FERRY_RESUME_QUIESCED },
		{ "one at rest", READY, FERRY_APP_RESUME, FERRY_RESUME_QUIESCED },
	};

	(void)state;
	for (size_t i = 0; i < N(rows); i++) {
		struct app app;
		uint32_t id;

		printf("%s\n", rows[i].name);
		start(&app);
		id = bring(&app, rows[i].stage);
		agent_restarts(&app.agent, app.f);
		expect(&app.agent, (uint16_t)rows[i].type);
		assert_int_equal(app.agent.m.id, id);
		assert_int_equal(app.agent.m.result, rows[i].was);
		assert_int_equal(app.agent.n, 1);
		if (rows[i].stage)
			assert_int_equal(app.agent.m.uuid[0], 0x55);
		assert_int_equal(app.lost, 1);
		assert_int_equal(app.connected, 1);
		if (rows[i].stage == SILENT_QUIESCED) /* too late for the old, unasked by the new */
			assert_int_equal(ferry_ready(app.u, "x", 1), 0);
		assert_false(heard(&app.agent));
		end(&app);
	}
}

static void what_it_answers(void **state)
{
	static const struct {
		const char *name;
		int stage;
		uint16_t answer;
		const char *text;
		int offered, aborted, committed;
		bool ends, set_back;
	} rows[] = {
		{ "goes on", OURS, FERRY_APP_OFFERED, "", 2, 0, 0, false, false },
		{ "not kept", OURS, FERRY_APP_OFFERED, "flow-owned", 2, 0, 0, true, false },
		{ "not flipped", READY, FERRY_APP_ABORTED, "agent-restarted", 1, 1, 0, false, true },
		{ "flipped", READY, FERRY_APP_COMMITTED, "", 1, 0, 1, true, false },
		{ "not kept, at rest", READY, FERRY_APP_OFFERED, "table-full", 2, 0, 0, true, false },
		{ "never at rest", SILENT_QUIESCED, FERRY_APP_ABORTED, "x", 1, 1, 0, false, true },
		{ "out of turn: asked to rest", OURS, FERRY_APP_QUIESCE, "", 1, 0, 0, false, false },
		{ "out of turn: flipped", OURS, FERRY_APP_COMMITTED, "", 1, 0, 0, false, false },
	};

	(void)state;
	for (size_t i = 0; i < N(rows); i++) {
		struct app app;
		uint32_t id;

		printf("%s\n", rows[i].name);
		start(&app);
		id = bring(&app, rows[i].stage);
		agent_restarts(&app.agent, app.f);
		say(&app.agent, rows[i].answer, id, rows[i].text);
		say(&app.agent, rows[i].answer, id, rows[i].text); /* once is enough */
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.offered, rows[i].offered);
		assert_int_equal(app.aborted, rows[i].aborted);
		assert_int_equal(app.committed, rows[i].committed);
		assert_int_equal(get(app.fd, SOL_SOCKET, SO_KEEPALIVE),
				 rows[i].stage != READY || rows[i].set_back);
		assert_int_equal(get(app.fd, SOL_SOCKET, SO_REUSEADDR),
				 rows[i].stage != READY || rows[i].set_back);
		assert_int_equal(get(app.fd, IPPROTO_TCP, TCP_USER_TIMEOUT),
				 rows[i].stage != READY || rows[i].set_back ? 7000 : 0);
		if (!rows[i].ends)
			ferry_withdraw(app.u);
		end(&app);
	}
}

/* Offers and withdrawals while there is no agent; more than one agent passes by. */
static void without_an_agent(void **state)
{
	struct ferry_unit *kept, *dropped;
	struct app app;

	(void)state;
	start(&app);
	close(app.agent.fd);
	assert_int_equal(ferry_dispatch(app.f), 0);
	assert_int_equal(app.lost, 1);
	app.agent.fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* agent_restarts() closes it */
	assert_int_equal(ferry_offer(app.f, &app.fd, NULL, 1, NULL, &kept), 0);
	assert_int_equal(ferry_offer(app.f, &app.fd, NULL, 1, NULL, &dropped), 0);
	ferry_withdraw(dropped);
	for (int turn = 0; turn < 3; turn++) {
		agent_restarts(&app.agent, app.f);
		expect(&app.agent, FERRY_APP_OFFER);
		assert_int_equal(app.agent.n, 1);
		assert_false(heard(&app.agent));
	}
	assert_int_equal(app.connected, 3);
	end(&app);
}

/* A set that is lent: with its memfd, and GO or DISCARD by its handle. */
static void a_lent_set(void **state)
{
	static const uint16_t answers[] = { FERRY_APP_GO, FERRY_APP_DISCARD };

	(void)state;
	for (size_t i = 0; i < N(answers); i++) {
		struct ferry_app_message m = { .type = answers[i], .version = FERRY_APP_VERSION };
		struct ferry_bundle head = { .magic = FERRY_BUNDLE_MAGIC, .count = 1 };
		struct ferry_bundle_socket s = {};
		struct app app;

		start(&app);
		lend_request(&app.agent, 7, 1);
		assert_int_equal(ferry_dispatch(app.f), 0);
		expect(&app.agent, FERRY_APP_BUNDLE);
		head.state_at = sizeof(head) + sizeof(s);
		assert_int_equal(pwrite(app.agent.fds[0], &head, sizeof(head), 0), sizeof(head));
		assert_int_equal(pwrite(app.agent.fds[0], &s, sizeof(s), sizeof(head)), sizeof(s));
		expect(&app.agent, FERRY_APP_LENT);
		agent_restarts(&app.agent, app.f);
		expect(&app.agent, FERRY_APP_BUNDLE);
		assert_int_equal(app.agent.m.id, 0);
		assert_int_equal(app.agent.n, 1);
		expect(&app.agent, FERRY_APP_RESUME);
		assert_int_equal(app.agent.m.result, FERRY_RESUME_LENT);
		m.handle = app.agent.m.id;
		m.id = 7; /* the old agent's request: nothing of this one's */
		send_raw(&app.agent, &m, sizeof(m));
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, 0);
		m.id = 0;
		send_raw(&app.agent, &m, sizeof(m));
		send_raw(&app.agent, &m, sizeof(m));
		assert_int_equal(ferry_dispatch(app.f), 0);
		assert_int_equal(app.arrived, answers[i] == FERRY_APP_GO);
		end(&app);
	}
}

/* It asks, by our leave, in our namespace. */
static void hello_lends_sock_diag(void **state)
{
	struct app app;
	int protocol = -1;
	socklen_t size = sizeof(protocol);

	(void)state;
	start(&app);
	assert_int_equal(app.agent.n, 1);
	assert_int_equal(getsockopt(app.agent.fds[0], SOL_SOCKET, SO_PROTOCOL, &protocol, &size), 0);
	assert_int_equal(protocol, NETLINK_SOCK_DIAG);
	end(&app);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_new_agent_hears), cmocka_unit_test(what_it_answers),
		cmocka_unit_test(without_an_agent),	  cmocka_unit_test(a_lent_set),
		cmocka_unit_test(hello_lends_sock_diag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
