// SPDX-License-Identifier: BSD-2-Clause
/*
 * The witness in the kernel (bpf/witness.bpf.c by ctl/listener/ledger.h): real listeners, and
 * clients of each sort in their queues, over IPv4 and IPv6; each count is what was made, for the
 * socket, for the address, in the sum and in the record of the close. What it knows of the kernel's
 * order of things holds on every kernel that this passes on.
 */
#include "witness_world.h"

enum way { CLOSE, SHUTDOWN, UNSPEC, KILL };

/* Clients by what they do while they are queued; before them, accepted ones. */
struct row {
	const char *name;
	enum way way;
	bool migrate;      /* the sysctl is on, and there is another listener in the group */
	int aborted, left; /* accepted; closed with SO_LINGER 0, or plainly */
	int stay, half, closed, dead; /* half: shutdown; closed: close; dead: reset by the client */
	bool wildcard;
};

static const struct row rows[] = {
	{ "closed", CLOSE, .stay = 7 },
	{ "closed, all addresses", CLOSE, .stay = 5, .half = 1, .wildcard = true },
	{ "nobody is queued", .way = CLOSE },
	{ "one", CLOSE, .stay = 1 },
	{ "clients of each sort", CLOSE, .stay = 6, .half = 3, .closed = 4, .dead = 5 },
	{ "only dead ones", CLOSE, .dead = 9 },
	{ "accepted ones beside them", CLOSE, .aborted = 4, .left = 5, .stay = 6, .dead = 1 },
	{ "only accepted ones", CLOSE, .aborted = 4, .left = 5 },
	{ "shut down", SHUTDOWN, .stay = 6, .half = 1, .closed = 2, .dead = 3 },
	{ "connected to nothing", UNSPEC, .stay = 6, .half = 1, .closed = 2, .dead = 3 },
	{ "killed", KILL, .stay = 6, .half = 1, .closed = 2, .dead = 3 },
	{ "killed, accepted ones beside them", KILL, .aborted = 3, .left = 3, .stay = 5 },
	{ "closed, migrated", CLOSE, true, .stay = 6, .half = 1, .closed = 2, .dead = 3 },
	{ "shut down, migrated", SHUTDOWN, true, .aborted = 2, .stay = 6, .dead = 3 },
	{ "killed, migrated", KILL, true, .left = 2, .stay = 6, .half = 3 },
};

/* The listener ends; in another process where that is killed. */
static pid_t end(enum way way, int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	pid_t pid = way == KILL ? fork() : getpid();
	int status;

	if (!pid) {
		for (;;)
			pause();
	}
	if (way == SHUTDOWN)
		assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
	if (way == UNSPEC)
		assert_int_equal(connect(fd, &none, sizeof(none)), 0);
	close(fd);
	if (way == KILL) {
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	return pid;
}

static void expect(const struct witness_close *c, const struct row *r, const char *what)
{
	__u64 all = (__u64)(r->stay + r->half + r->closed + r->dead);
	const __u64 wanted[WITNESS_COUNT] = {
		[WITNESS_CLOSES] = 1,
		[WITNESS_QUEUED] = all,
		[WITNESS_RESET] = r->migrate ? 0 : (__u64)r->stay,
		[WITNESS_HALF_CLOSED] = r->migrate ? 0 : (__u64)(r->half + r->closed),
		[WITNESS_GONE] = r->migrate ? 0 : (__u64)r->dead,
		[WITNESS_MIGRATED] = r->migrate ? all : 0,
	};

	for (int i = 0; i < WITNESS_COUNT; i++)
		if (c->n[i] != wanted[i])
			fail_msg("%s, %s: %s %llu, not %llu", r->name, what, account_counts[i],
				 c->n[i], wanted[i]);
}

struct find {
	uint16_t port;
	struct witness_close row;
};

static void find_row(const struct witness_close *row, void *data)
{
	struct find *f = data;

	if (row->key.port == f->port)
		f->row = *row;
}

static void queue(const struct row *r, int family, int listener, int *fds)
{
	uint16_t port = port_of(listener);
	int n = 0, accepted[CLIENTS];

	for (int i = 0; i < r->aborted + r->left; i++)
		fds[n++] = client(family, port);
	for (int i = 0; i < n; i++)
		accepted[i] = accept(listener, NULL, NULL);
	for (int i = 0; i < r->stay + r->half + r->closed + r->dead; i++) {
		int fd = fds[n++] = client(family, port);

		if (i < r->stay)
			continue;
		if (i < r->stay + r->half)
			assert_int_equal(shutdown(fd, SHUT_WR), 0);
		else if (i < r->stay + r->half + r->closed)
			close_fd(&fds[n - 1]);
		else
			abort_it(TAKE_FD(fds[n - 1]));
	}
	for (int i = 0; i < r->aborted + r->left; i++) {
		char unread[1];

		if (i < r->aborted) {
			abort_it(accepted[i]);
			continue;
		}
		assert_int_equal(read(accepted[i], unread, 1), 1); /* so that it is no abort */
		close(accepted[i]);
	}
	wait_queued(listener, (uint32_t)(n - r->aborted - r->left));
}

static void closes(const struct row *r, int family)
{
	int fds[CLIENTS], queued = r->stay + r->half + r->closed + r->dead,
			  skip = r->aborted + r->left;
	int listener = listen_at(family, r->wildcard, 0), other = -1, resets, lost;
	uint64_t cookie = cookie_of(listener), strays = ledger.state->strays;
	struct find f = { .port = port_of(listener) };
	struct witness_close row;
	__u64 sum = ledger.state->n[WITNESS_RESET];
	pid_t pid;

	printf("%s: %s\n", families[family], r->name);
	set_migrate(r->migrate);
	queue(r, family, listener, fds);
	if (r->migrate)
		other = listen_at(family, r->wildcard, f.port);
	memset(&told, 0, sizeof(told));
	told_clients = 0;
	ledger.data = &f.port;
	pid = end(r->way, listener);
	lost = r->migrate ? 0 : r->stay + r->half;
	resets = count_resets(fds + skip, r->stay + r->half, lost);
	assert_int_equal(resets, lost);
	read_all();
	expect(&told, r, "told");
	assert_int_equal(told_clients, r->migrate ? 0 : lost + r->closed);
	assert_int_equal(told.pid, pid);
	assert_int_equal(told.way,
			 r->way == CLOSE || r->way == KILL ? WITNESS_CLOSED : WITNESS_SHUT_DOWN);
	assert_int_equal(ledger_rows(&ledger, find_row, &f), 0);
	expect(&f.row, r, "of the address");
	assert_int_equal(ledger_socket(&ledger, cookie, &row), 0);
	expect(&row, r, "of the socket");
	assert_true(ledger.state->n[WITNESS_RESET] - sum >= told.n[WITNESS_RESET]);
	assert_int_equal(ledger.state->strays, strays);
	if (r->migrate)
		wait_queued(other, (uint32_t)queued);
	close_fd(&other);
	for (int i = 0; i < skip + queued; i++)
		close_fd(&fds[i]);
}

static void every_close(void **state)
{
	(void)state;
	for (int family = 0; family < 2; family++)
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			closes(&rows[i], family);
}

/* A socket that listens again has its closes under one cookie. */
static void twice(void **state)
{
	const uint16_t port = 7001; /* one that the kernel has chosen is lost by shutdown() */
	int fd = listen_at(0, false, port), one;
	uint64_t cookie = cookie_of(fd);
	struct witness_close row;

	(void)state;
	for (int i = 0; i < 2; i++) {
		one = client(0, port);
		wait_queued(fd, 1);
		assert_int_equal(shutdown(fd, SHUT_RD), 0);
		assert_int_equal(count_resets(&one, 1, 1), 1);
		close(one);
		assert_int_equal(listen(fd, CLIENTS), 0);
	}
	close(fd);
	assert_int_equal(ledger_socket(&ledger, cookie, &row), 0);
	assert_int_equal(row.n[WITNESS_CLOSES], 3);
	assert_int_equal(row.n[WITNESS_RESET], 2);
	assert_int_equal(row.n[WITNESS_QUEUED], 2);
}

/* What a process accepts after its client has gone, and then closes, was not lost in a close. */
static void accepted_dead(void **state)
{
	int fd = listen_at(1, false, 0);
	uint64_t strays = ledger.state->strays, lost = account_lost(ledger.state->n);

	(void)state;
	abort_it(client(1, port_of(fd)));
	wait_queued(fd, 1);
	close(accept(fd, NULL, NULL));
	close(fd);
	assert_int_equal(ledger.state->strays, strays);
	assert_true(account_lost(ledger.state->n) == lost);
}

/* A listen() that fails ends in CLOSE, too, and was none. */
static void failed_listen(void **state)
{
	int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), b = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in sin = { .sin_family = AF_INET };
	socklen_t size = sizeof(sin);
	struct witness_close row;
	int one = 1;

	(void)state;
	setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(b, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(a, (struct sockaddr *)&sin, size), 0);
	assert_int_equal(getsockname(a, (struct sockaddr *)&sin, &size), 0);
	assert_int_equal(bind(b, (struct sockaddr *)&sin, size), 0);
	assert_int_equal(listen(a, 1), 0);
	assert_int_equal(listen(b, 1), -1);
	assert_int_equal(ledger_socket(&ledger, cookie_of(b), &row), -ENOENT);
	close(b);
	close(a);
}

/* More addresses than there are rows: counted in the sum, and that they are in no row. */
static void full(void **state)
{
	__u64 before = ledger.state->n[WITNESS_CLOSES];
	struct find f = {};
	int one = 1;

	(void)state;
	ledger.closed = NULL;
	for (uint16_t port = 20000; port < 20000 + WITNESS_ROWS + 10; port++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
		assert_int_equal(listen(fd, 1), 0);
		close(fd);
		read_all();
	}
	assert_true(ledger.state->n[WITNESS_CLOSES] - before >= WITNESS_ROWS + 10);
	assert_true(ledger.state->no_row >= 10);
	assert_int_equal(ledger.state->unsaid, 0);
	assert_int_equal(ledger.state->unseen, 0);
	assert_int_equal(ledger_rows(&ledger, find_row, &f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_close),   cmocka_unit_test(twice),
		cmocka_unit_test(accepted_dead), cmocka_unit_test(failed_listen),
		cmocka_unit_test(full),
	};
	int failed;

	if (world_open())
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ledger_close(&ledger);
	return failed;
}
