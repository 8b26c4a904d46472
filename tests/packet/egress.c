// SPDX-License-Identifier: BSD-2-Clause
/*
 * What this node itself sends for a unit: stopped in FENCED, PREPARED, REMOTE and GONE, and in no
 * other state; what it only forwards (it came in by a device) is never stopped, but for what comes
 * from the namespace of the unit's own sockets, nor anything that is no unit's. A packet that is let through goes on bit for bit, for other programs to see
 * (TC_ACT_UNSPEC), and counts nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <linux/pkt_cls.h>
#include "rows.h"
#include "groups.h"

struct egress_row {
	const char *name;
	unsigned int kinds;
	int state; /* -1: no entry */
	uint32_t ifindex, device; /* that it came in by; that leads to the unit's namespace */
	size_t length;
	struct patch patch[2]; /* AT_INNER only */
	bool stopped;
};

static struct env env;

#define HELD(s) .kinds = FLOWS, .state = FERRY_##s
#define FLOWS (K_TCP | K_UDP | K_BOUND | K_STASH)
static const struct egress_row egress_rows[] = {
	{ "own, no entry", .kinds = FLOWS, .state = -1 },
	{ "own, FREE", HELD(FREE) },
	{ "own, LOCAL", HELD(LOCAL) },
	{ "own, FENCED", HELD(FENCED), .stopped = true },
	{ "own, PREPARED", HELD(PREPARED), .stopped = true },
	{ "own, OPENING", HELD(OPENING) },
	{ "own, REMOTE", HELD(REMOTE), .stopped = true },
	{ "own, GONE", HELD(GONE), .stopped = true },
	{ "own, a state of a later layout", .kinds = FLOWS, .state = 15, .stopped = true },
	{ "forwarded, FREE", HELD(FREE), .ifindex = IFINDEX_LO },
	{ "forwarded, LOCAL", HELD(LOCAL), .ifindex = IFINDEX_LO },
	{ "forwarded, FENCED", HELD(FENCED), .ifindex = IFINDEX_LO },
	{ "forwarded, PREPARED", HELD(PREPARED), .ifindex = IFINDEX_LO },
	{ "forwarded, OPENING", HELD(OPENING), .ifindex = IFINDEX_LO },
	{ "forwarded, REMOTE", HELD(REMOTE), .ifindex = IFINDEX_LO },
	{ "forwarded, GONE", HELD(GONE), .ifindex = IFINDEX_LO },
	{ "from its namespace, LOCAL", HELD(LOCAL), .ifindex = IFINDEX_LO, .device = IFINDEX_LO },
	{ "from its namespace, FENCED", HELD(FENCED), .ifindex = IFINDEX_LO,
	  .device = IFINDEX_LO, .stopped = true },
	{ "from its namespace, REMOTE", HELD(REMOTE), .ifindex = IFINDEX_LO,
	  .device = IFINDEX_LO, .stopped = true },
	{ "from another device than its namespace's, FENCED", HELD(FENCED), .ifindex = IFINDEX_LO,
	  .device = IFINDEX_LO + 1 },
	{ "from its namespace, no entry", .kinds = FLOWS, .state = -1, .ifindex = IFINDEX_LO,
	  .device = IFINDEX_LO },
	{ "own, FENCED, full size", HELD(FENCED), .length = 1500, .stopped = true },
	{ "own, FENCED, jumbo", HELD(FENCED), .length = 3000, .stopped = true },
	{ "own, FENCED, GSO: length field larger than the frame", HELD(FENCED),
	  .patch = { { AT_INNER, 2, 0xf0, 4 }, { AT_INNER, 4, 0xf0, 6 } }, .stopped = true },
	{ "own, FENCED, BIG TCP: length field 0", HELD(FENCED), .length = 255 + 40,
	  .patch = { { AT_INNER, 2, 0 }, { AT_INNER, 3, 0 } }, .stopped = true },
	{ "own, FENCED, an ICMP error that quotes the flow is not the unit's",
	  .kinds = K_ICMP, .state = FERRY_FENCED },
	{ "own, FENCED, fragment: no port is read", HELD(FENCED),
	  .patch = { { AT_INNER, 6, 0x20, 4 }, { AT_INNER, 6, 44, 6 } } },
	{ "own, FENCED, protocol SCTP", HELD(FENCED),
	  .patch = { { AT_INNER, 9, 132, 4 }, { AT_INNER, 6, 132, 6 } } },
	{ "own, FENCED, another source port", HELD(FENCED),
	  .patch = { { AT_INNER, 21, 0xbc, 4 }, { AT_INNER, 41, 0xbc, 6 } } },
};

/* BIG TCP: IPv6 has its length field elsewhere. */
static void egress_frame(struct buf *f, const struct egress_row *row, enum kind kind, bool v6)
{
	struct inner i = { .v6 = v6, .icmp = kind & K_ICMP, .reply = true,
			   .proto = kind & (K_UDP | K_BOUND | K_ICMP_UDP) ? 17 : 6, .ttl = 64,
			   .length = row->length };

	f->n = 0;
	eth_in(f, v6);
	build_inner(f, &i);
	for (int p = 0; p < 2; p++) {
		const struct patch *patch = &row->patch[p];
		bool length_field = patch->offset == 2 || patch->offset == 3;

		if (!patch->at || (patch->only && patch->only != (v6 ? 6 : 4)))
			continue;
		f->b[ETH + patch->offset + (v6 && length_field ? 2 : 0)] = patch->value;
	}
}

static void egress_variant(const struct egress_row *row, enum kind kind, bool v6)
{
	static struct result got;
	static struct buf f;
	char name[160];
	struct ferry_flow flow;
	uint32_t verdict = row->stopped ? TC_ACT_SHOT : (uint32_t)TC_ACT_UNSPEC;

	snprintf(name, sizeof(name), "%s [kind %d, IPv%d]", row->name, kind, v6 ? 6 : 4);
	flow_key(&flow, v6, kind & (K_UDP | K_BOUND | K_ICMP_UDP) ? 17 : 6, kind == K_BOUND);
	if (row->state >= 0) {
		env.words[UNIT] = FERRY_WORD(9, row->state, HOP_SAME);
		env.records[UNIT].device = row->device;
		assert_int_equal(kind == K_STASH ? env_flow_stash(&env, &flow, UNIT) :
						   env_flow(&env, &flow, UNIT), 0);
	}
	egress_frame(&f, row, kind, v6);
	assert_int_equal(env_egress(&env, &f, row->ifindex, &got), 0);
	if (got.verdict != verdict)
		fail_msg("%s: verdict %d, want %d", name, (int)got.verdict, (int)verdict);
	check_reasons(&got, row->stopped ? FERRY_R_EGRESS_FENCED : FERRY_R_COUNT, 0, name);
	if (!row->stopped)
		check_bytes(&got.out, &f, name);
	env_clear(&env);
}

static void run_row(void **state)
{
	const struct egress_row *row = *state;

	env_clear(&env);
	for (int kind = 1; kind < K_ALL; kind <<= 1) {
		if (!(kind & row->kinds))
			continue;
		egress_variant(row, kind, false);
		egress_variant(row, kind, true);
	}
}

static int setup(void **state)
{
	(void)state;
	return env_open(&env, WORLD);
}

static int teardown(void **state)
{
	(void)state;
	env_close(&env);
	return 0;
}

int run_egress(void)
{
	enum { ROWS = sizeof(egress_rows) / sizeof(egress_rows[0]) };
	struct CMUnitTest t[ROWS];

	for (size_t i = 0; i < ROWS; i++)
		t[i] = (struct CMUnitTest){ .name = egress_rows[i].name, .test_func = run_row,
					    .initial_state = (void *)&egress_rows[i] };
	return _cmocka_run_group_tests("egress", t, ROWS, setup, teardown);
}
