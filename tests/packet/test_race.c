// SPDX-License-Identifier: BSD-2-Clause
/*
 * A reader never sees half of two entries. The writer (ctl/dataplane/table.c) recycles the slots of
 * two buckets between two flows as fast as it can, while ferry_steer looks up flows in the same
 * slots, thousands of times a system call:
 *
 *   first    addresses A, ports 1    in and out, LOCAL
 *   second   addresses B, ports 2    in and out, GONE; no packet of it is ever sent
 *   stays    addresses C, ports 3    always in, FENCED
 *   chimera  addresses A, ports 2    never in: whoever finds it has mixed first and second, and
 *                                    counts under "gone"
 *   half     IPv6 only: the client's address half A's, half B's, ports 2: never in either
 *
 * Asserted: no chimera, "stays" found every time, and that the two really met: slots recycled,
 * lookups made, and "first" seen both in and out. A grace period is an update of a map in a map:
 * the kernel waits for running programs (kernel/bpf/syscall.c, maybe_wait_bpf_programs()).
 *
 * Controls: a reader in user space over the same memory, which dawdles between its reads. Without
 * grace it must see chimeras, whether it reads the ports once or, as steer does, twice (the same
 * ports come back in between). With a grace period that waits for it, it must see none. By hand:
 * steer without its second read, beside a writer without grace, found 13 in 16 million lookups
 * in 4 s; with either rule it found none, so its own reads are too close together for a control.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include "env.h"

#define SECONDS 2
#define PATIENCE 40 /* seconds more, on a busy machine, until there was enough to see */
#define BATCH 100000 /* lookups a system call: its set-up waits for RCU, some 20 ms */
#define DAWDLE 1000
enum { FIRST, SECOND, STAYS, CHIMERA, HALF, FLOWS };

struct race {
	struct env env;
	bool v6;
	struct ferry_flow flow[FLOWS];
	atomic_bool stop;
	int outer, inner; /* the map in a map */
	uint64_t graces, recycled, exchanged;
	uint32_t last[2 * FERRY_SLOTS4]; /* unit in each slot */
	/* the reader's */
	uint64_t lookups[FLOWS], reasons[FERRY_R_COUNT];
	int error;
	/* the dawdler's */
	bool twice;
	_Atomic uint64_t left, chimeras; /* lookups that are over */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int grace(void *arg)
{
	struct race *r = arg;
	uint32_t zero = 0;

	r->graces++;
	return bpf_map_update_elem(r->outer, &zero, &r->inner, 0) ? -errno : 0;
}

static int no_grace(void *arg)
{
	(void)arg;
	return 0;
}

/* Until the dawdler has left the lookup that it is in. */
static int dawdler_grace(void *arg)
{
	struct race *r = arg;
	uint64_t left = r->left;

	r->graces++;
	while (r->left == left)
		;
	return 0;
}

static void grace_open(struct race *r)
{
	LIBBPF_OPTS(bpf_map_create_opts, o);

	r->inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "inner", 4, 4, 1, NULL);
	o.inner_map_fd = r->inner;
	r->outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "grace", 4, 4, 1, &o);
	assert_true(r->inner >= 0 && r->outer >= 0);
}

/* Ports so that both buckets are the flow's: everything meets everywhere. */
static void choose_ports(const struct race *r, struct ferry_flow *f, uint16_t from)
{
	for (uint16_t port = from;; port++) {
		f->sport = htons(port);
		if (flow_in_all_buckets(&r->env, f))
			return;
	}
}

static void choose_flows(struct race *r)
{
	uint16_t port = 20000;

	for (int i = 0; i < FLOWS; i++) {
		flow_key(&r->flow[i], r->v6, 6, false);
		r->flow[i].saddr[15] = i + 1; /* A, B, C */
		r->flow[i].saddr[r->v6 ? 7 : 14] = i + 1; /* IPv6: both words of it */
	}
	memcpy(r->flow[CHIMERA].saddr, r->flow[FIRST].saddr, 16);
	memcpy(r->flow[HALF].saddr, r->flow[FIRST].saddr, 8);
	memcpy(r->flow[HALF].saddr + 8, r->flow[SECOND].saddr + 8, 8);
	choose_ports(r, &r->flow[FIRST], 10000);
	choose_ports(r, &r->flow[STAYS], 30000);
	do { /* one port for all who could be mixed up with "second" */
		choose_ports(r, &r->flow[SECOND], port);
		port = ntohs(r->flow[SECOND].sport) + 1;
		r->flow[CHIMERA].sport = r->flow[HALF].sport = r->flow[SECOND].sport;
	} while (!flow_in_all_buckets(&r->env, &r->flow[CHIMERA]) ||
		 !flow_in_all_buckets(&r->env, &r->flow[HALF]));
}

static void race_open(struct race *r, bool v6)
{
	memset(r, 0, sizeof(*r));
	r->v6 = v6;
	assert_int_equal(env_open(&r->env, (struct world){ .self = 1, .vni = 0xfe44,
							   .buckets = 2 }), 0);
	grace_open(r);
	choose_flows(r);
	r->env.table.grace = grace;
	r->env.table.grace_arg = r;
	r->env.words[1 + FIRST] = FERRY_WORD(1, FERRY_LOCAL, 0);
	r->env.words[1 + SECOND] = FERRY_WORD(1, FERRY_GONE, 0);
	r->env.words[1 + STAYS] = FERRY_WORD(1, FERRY_FENCED, 2);
	assert_int_equal(env_flow(&r->env, &r->flow[STAYS], 1 + STAYS), 0);
}

static void race_close(struct race *r)
{
	close(r->outer);
	close(r->inner);
	env_close(&r->env);
}

static void frame_of(struct buf *f, const struct race *r, int flow)
{
	struct inner i = { .v6 = r->v6, .proto = 6, .ttl = 61 };

	f->n = 0;
	eth_in(f, r->v6);
	build_inner(f, &i); /* no checksum is looked at */
	if (r->v6)
		memcpy(f->b + ETH + 8, r->flow[flow].saddr, 16);
	else
		memcpy(f->b + ETH + 12, r->flow[flow].saddr + 12, 4);
	memcpy(f->b + ETH + (r->v6 ? 40 : 20), &r->flow[flow].sport, 2);
}

static void *kernel_reader(void *arg)
{
	static const int ask[] = { CHIMERA, STAYS, FIRST, HALF };
	static struct buf frame[FLOWS];
	static struct result got;
	struct race *r = arg;

	for (int i = 0; i < FLOWS; i++)
		frame_of(&frame[i], r, i);
	for (unsigned int n = 0; !r->stop && !r->error; n++) {
		int flow = ask[n % (r->v6 ? 4 : 3)];

		r->error = env_steer(&r->env, &frame[flow], IFINDEX_LO, BATCH, &got);
		r->lookups[flow] += BATCH;
		for (int i = 0; i < FERRY_R_COUNT; i++)
			r->reasons[i] += got.reasons[i];
	}
	return NULL;
}

static void dawdle(void)
{
	for (volatile int i = 0; i < DAWDLE; i++)
		;
}

static bool dawdler_finds(const struct race *r, int i, uint64_t want, uint64_t a)
{
	const volatile struct ferry_slot4 *s4 =
		&r->env.table.bucket4[i / FERRY_SLOTS4].slot[i % FERRY_SLOTS4];
	const volatile struct ferry_slot6 *s6 =
		&r->env.table.bucket6[i / FERRY_SLOTS6].slot[i % FERRY_SLOTS6];
	uint64_t b = r->v6 ? s6->b : s4->b;

	if ((b & FERRY_SLOT_KEY) != want)
		return false;
	dawdle();
	if ((r->v6 ? s6->a[0] : s4->a) != a)
		return false;
	dawdle();
	return !r->twice || b == (r->v6 ? s6->b : s4->b);
}

static void *dawdler(void *arg)
{
	struct race *r = arg;
	const struct ferry_flow *c = &r->flow[CHIMERA];
	uint64_t want = FERRY_SLOT_B(c->sport | (uint32_t)c->dport << 16, c->proto, 0), a;

	memcpy(&a, r->v6 ? c->saddr : c->saddr + 12, r->v6 ? 8 : 4);
	if (!r->v6)
		memcpy((char *)&a + 4, c->daddr + 12, 4);
	while (!r->stop) {
		for (int i = 0; i < 2 * (r->v6 ? FERRY_SLOTS6 : FERRY_SLOTS4); i++)
			r->chimeras += dawdler_finds(r, i, want, a);
		r->lookups[CHIMERA]++;
		r->left++;
	}
	return NULL;
}

/* The slot that unit is in; a slot that holds now the one, now the other is what this is about. */
static void note_slot(struct race *r, uint32_t unit)
{
	int per = r->v6 ? FERRY_SLOTS6 : FERRY_SLOTS4;

	for (int i = 0; i < 2 * per; i++) {
		uint64_t b = r->v6 ? r->env.table.bucket6[i / per].slot[i % per].b :
				     r->env.table.bucket4[i / per].slot[i % per].b;

		if (FERRY_SLOT_UNIT(b) != unit)
			continue;
		r->exchanged += r->last[i] && r->last[i] != unit;
		r->last[i] = unit;
		return;
	}
	fail_msg("unit %u is nowhere", unit);
}

/* At random: in strict turn each flow would get back its own slots. */
static void write_for(struct race *r, double seconds, bool (*enough)(const struct race *r))
{
	struct table *t = &r->env.table;
	uint32_t random = 2463534242;
	bool in[2] = { false };

	for (double end = now() + seconds, last = end + PATIENCE;
	     (now() < end || !enough(r)) && now() < last && !r->error && r->chimeras < 10;) {
		int i;

		random ^= random << 13, random ^= random >> 17, random ^= random << 5;
		i = random >> 16 & 1 ? FIRST : SECOND;
		if (in[i]) {
			assert_int_equal(table_delete(t, &r->flow[i]), 0);
		} else {
			assert_int_equal(table_insert(t, &r->flow[i], 1 + i), 0);
			note_slot(r, 1 + i);
			r->recycled++;
		}
		in[i] = !in[i];
	}
}

static void run(struct race *r, void *(*reader)(void *), double seconds,
		bool (*enough)(const struct race *r))
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, reader, r), 0);
	write_for(r, seconds, enough);
	r->stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(r->error, 0);
}

static void report(const char *what, const struct race *r)
{
	uint64_t lookups = 0;

	for (int i = 0; i < FLOWS; i++)
		lookups += r->lookups[i];
	print_message("%s, IPv%d: %llu chimeras in %llu lookups, %llu slots recycled, %llu of them "
		      "between the flows, %llu graces\n",
		      what, r->v6 ? 6 : 4,
		      (unsigned long long)(r->reasons[FERRY_R_GONE] + r->chimeras),
		      (unsigned long long)lookups, (unsigned long long)r->recycled,
		      (unsigned long long)r->exchanged,
		      (unsigned long long)r->graces);
}

static bool met_often(const struct race *r)
{
	return r->exchanged > 50 && r->graces > 10 && r->lookups[CHIMERA] > 100000 &&
	       r->lookups[STAYS] > 100000 && r->reasons[FERRY_R_LOCAL] > 0;
}

static bool many_graces(const struct race *r)
{
	return r->graces > 1000;
}

static bool a_chimera(const struct race *r)
{
	return r->chimeras > 0;
}

static void a_reader_sees_whole_entries(void **state)
{
	static struct race r;

	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		race_open(&r, v6);
		run(&r, kernel_reader, SECONDS, met_often);
		report("steer, grace", &r);
		assert_int_equal(r.reasons[FERRY_R_GONE], 0);
		assert_int_equal(r.reasons[FERRY_R_LOST_TCP], r.lookups[STAYS]);
		assert_true(met_often(&r));
		assert_true(r.reasons[FERRY_R_LOCAL] < r.lookups[FIRST]);
		race_close(&r);
	}
}

static void a_dawdler_needs_grace(void **state)
{
	static const struct {
		const char *name;
		bool twice, grace;
	} rows[] = {
		{ "ports read once, no grace", false, false },
		{ "ports read twice, no grace", true, false },
		{ "ports read twice, grace", true, true },
	};
	static struct race r;

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		race_open(&r, i & 1);
		r.twice = rows[i / 2].twice;
		r.env.table.grace = rows[i / 2].grace ? dawdler_grace : no_grace;
		run(&r, dawdler, 0.5, rows[i / 2].grace ? many_graces : a_chimera);
		report(rows[i / 2].name, &r);
		if (rows[i / 2].grace)
			assert_true(r.chimeras == 0 && many_graces(&r));
		else
			assert_true(a_chimera(&r));
		race_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(a_reader_sees_whole_entries),
		cmocka_unit_test(a_dawdler_needs_grace),
	};
	int r = env_netns();

	if (r) {
		fprintf(stderr, "no network namespace of our own: %d\n", r);
		return 1;
	}
	return cmocka_run_group_tests_name("race", t, NULL, NULL) ? 1 : 0;
}
