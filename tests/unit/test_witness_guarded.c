// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a guard's program (bpf/listener.bpf.c) has decided and what the witness has seen are one
 * account (ctl/listener/account.h): every connection that was queued is migrated, held, cancelled
 * or lost, and none is anything twice. What the program cancels the kernel resets as if it were
 * lost; it is told apart. Without the program all are lost: the control.
 */
#include "witness_world.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "listener.skel.h"

#ifndef SO_ATTACH_REUSEPORT_EBPF
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif

enum { HOLDER, FIRST = LISTENER_FIRST, SECOND };

static const struct {
	const char *name;
	bool program, holder;
	int room, stay, dead; /* room: at the other server */
	uint64_t migrated, held, cancelled, lost;
} rows[] = {
	{ "all fit at the other server", true, true, 30, 6, 2, .migrated = 8 },
	{ "some do, the others are held", true, true, 5, 6, 4, .migrated = 5, .held = 5 },
	{ "all are held", true, true, 0, 7, 2, .held = 9 },
	{ "all are cancelled", true, false, 0, 7, 2, .cancelled = 9 },
	{ "some fit, the others are cancelled", true, false, 3, 7, 2, .migrated = 3,
	  .cancelled = 6 },
	{ "no program: all are lost", false, false, 0, 7, 2, .lost = 9 },
};

static void set_slot(struct listener_bpf *b, uint32_t slot, int fd, uint32_t weight, int room)
{
	struct listener_slot s = {
		.generation = 1, .weight = weight, .room = room, .cookie = cookie_of(fd)
	};
	uint64_t value = (uint64_t)fd;

	assert_int_equal(bpf_map_update_elem(bpf_map__fd(b->maps.socks), &slot, &value, BPF_ANY),
			 0);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(b->maps.slots), &slot, &s, BPF_ANY), 0);
}

static void read_counts(struct listener_bpf *b, uint64_t counts[LISTENER_COUNT])
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t values[cpus];

	for (uint32_t i = 0; i < LISTENER_COUNT; i++) {
		counts[i] = 0;
		assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(b->maps.counts), &i, values), 0);
		for (int cpu = 0; cpu < cpus; cpu++)
			counts[i] += values[cpu];
	}
}

static void accounts(size_t i, int family)
{
	const struct listener_group open = { .hold = { HOLDER }, .working = 1, .open = 1 };
	struct listener_bpf *b = listener_bpf__open_and_load();
	int fds[CLIENTS], first = listen_at(family, false, 0), second, holder = -1, n = 0, program;
	uint16_t port = port_of(first);
	uint64_t counts[LISTENER_COUNT];
	uint32_t zero = 0;
	struct account a;

	printf("%s: %s\n", families[family], rows[i].name);
	assert_non_null(b);
	while (n < rows[i].stay + rows[i].dead) {
		fds[n] = client(family, port);
		if (n++ % 2 && n / 2 <= rows[i].dead)
			abort_it(TAKE_FD(fds[n - 1]));
	}
	wait_queued(first, (uint32_t)n);
	second = listen_at(family, false, port);
	if (rows[i].holder)
		holder = listen_at(family, false, port);
	program = bpf_program__fd(b->progs.listener);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(b->maps.group), &zero, &open, BPF_ANY), 0);
	if (rows[i].program) {
		assert_int_equal(setsockopt(first, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program,
					    sizeof(program)),
				 0);
		set_slot(b, FIRST, first, 1, 0);
		set_slot(b, SECOND, second, 1, rows[i].room);
		if (rows[i].holder)
			set_slot(b, HOLDER, holder, 0, 0);
	}
	ledger.data = &port;
	memset(&told, 0, sizeof(told));
	close(first);
	read_all();
	read_counts(b, counts);
	a = account_of(told.n, rows[i].program ? counts : NULL);
	assert_int_equal(a.queued, n);
	assert_int_equal(a.migrated_alive + a.migrated_dead, rows[i].migrated);
	assert_int_equal(a.held, rows[i].held);
	assert_int_equal(a.cancelled, rows[i].cancelled);
	assert_int_equal(a.lost, rows[i].lost);
	assert_int_equal(a.unexplained, 0);
	assert_int_equal(account_lost(told.n), rows[i].cancelled + rows[i].lost);
	assert_int_equal(told.n[WITNESS_MIGRATED], rows[i].migrated + rows[i].held);
	wait_queued(second, (uint32_t)rows[i].migrated);
	close_fd(&second);
	close_fd(&holder);
	while (n > 0)
		close_fd(&fds[--n]);
	listener_bpf__destroy(b);
}

static void every_account(void **state)
{
	(void)state;
	set_migrate(false); /* the program is asked all the same */
	for (int family = 0; family < 2; family++)
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			accounts(i, family);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_account) };
	int failed;

	if (world_open())
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ledger_close(&ledger);
	return failed;
}
