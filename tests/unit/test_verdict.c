// SPDX-License-Identifier: BSD-2-Clause
/*
 * decide() and may_send() (bpf/verdict.h) over the full product of state, claim, protocol and ICMP,
 * against a table written from docs/DESIGN.md sections 3.5 and 4 and the sentences of reason.h.
 * Each relation is tried at several epochs, across the wrap of the serial number (RFC 1982) too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "../../bpf/verdict.h"

enum relation { NONE, OLDER, EQUAL, NEWER, RELATIONS };
enum stamp { NOT_SENT, CLAIM, WORD };

#define LOST FERRY_R_COUNT /* by protocol */
#define HOP 0x0abcdef

struct row {
	const char *name;
	uint32_t state;
	enum relation claim;
	uint32_t action, reason, note;
	enum stamp stamp;
	uint32_t newer, raise, park;
};

#define ROW(s, c) .name = #s ", " #c, .state = FERRY_##s, .claim = c
#define DELIVER(r) .action = ACT_DELIVER, .reason = FERRY_R_##r
#define SEND(r, s) .action = ACT_SEND, .reason = FERRY_R_##r, .stamp = s
#define DROP(r) .action = ACT_DROP, .reason = FERRY_R_##r
#define PARK .action = ACT_DROP, .reason = LOST, .park = true
#define OLD .note = FERRY_R_EPOCH_OLD
#define TOLD .newer = true

static const struct row rows[] = {
	/* served here; only reuse of the tuple can make a newer claim: our word is raised to it */
	{ ROW(LOCAL, NONE), DELIVER(LOCAL) },
	{ ROW(LOCAL, OLDER), DELIVER(LOCAL), OLD },
	{ ROW(LOCAL, EQUAL), DELIVER(LOCAL) },
	{ ROW(LOCAL, NEWER), DELIVER(LOCAL), .note = FERRY_R_EPOCH_REUSE, TOLD, .raise = true },
	/* FENCED and OPENING park everything; a newer stamp is noted in the record */
	{ ROW(FENCED, NONE), PARK },
	{ ROW(FENCED, OLDER), PARK, OLD },
	{ ROW(FENCED, EQUAL), PARK },
	{ ROW(FENCED, NEWER), PARK, TOLD },
	{ ROW(OPENING, NONE), PARK },
	{ ROW(OPENING, OLDER), PARK, OLD },
	{ ROW(OPENING, EQUAL), PARK },
	{ ROW(OPENING, NEWER), PARK, TOLD },
	/* PREPARED parks exactly its own epoch; the rest, newer too, goes on to the origin, with
	 * the claim it came with: only a program that reads REMOTE stamps a new one */
	{ ROW(PREPARED, NONE), SEND(PREPARED, CLAIM) },
	{ ROW(PREPARED, OLDER), SEND(PREPARED, CLAIM), OLD },
	{ ROW(PREPARED, EQUAL), PARK },
	{ ROW(PREPARED, NEWER), SEND(PREPARED, CLAIM), TOLD },
	/* REMOTE stamps its epoch; who claims a newer one knows that we are stale */
	{ ROW(REMOTE, NONE), SEND(REMOTE, WORD) },
	{ ROW(REMOTE, OLDER), SEND(REMOTE, WORD), OLD },
	{ ROW(REMOTE, EQUAL), SEND(REMOTE, WORD) },
	{ ROW(REMOTE, NEWER), DROP(STALE), TOLD },
	{ ROW(GONE, NONE), DROP(GONE) },
	{ ROW(GONE, OLDER), DROP(GONE), OLD },
	{ ROW(GONE, EQUAL), DROP(GONE) },
	{ ROW(GONE, NEWER), DROP(STALE), TOLD },
	/* an entry that names a free unit decides nothing, and there is no record to tell */
	{ ROW(FREE, NONE), DELIVER(FREE_UNIT) },
	{ ROW(FREE, OLDER), DELIVER(FREE_UNIT), OLD },
	{ ROW(FREE, EQUAL), DELIVER(FREE_UNIT) },
	{ ROW(FREE, NEWER), DELIVER(FREE_UNIT) },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const uint32_t epochs[] = { 1, 2, 100, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe,
				   0xffffffff };
static const uint32_t distances[] = { 1, 2, 1000, 0x7ffffffe, 0x7fffffff };

static uint32_t lost(uint8_t proto, uint8_t icmp)
{
	if (icmp)
		return FERRY_R_LOST_ICMP;
	return proto == 6 ? FERRY_R_LOST_TCP : FERRY_R_LOST_UDP;
}

static void check(const struct row *r, uint32_t epoch, uint32_t claim, uint8_t proto, uint8_t icmp)
{
	struct verdict v = decide(FERRY_WORD(epoch, r->state, HOP), claim, proto, icmp);
	uint32_t reason = r->reason == LOST ? lost(proto, icmp) : r->reason;
	uint32_t stamp = r->stamp == WORD ? epoch : claim;
	bool same = v.action == r->action && v.reason == reason && v.note == r->note &&
		    v.newer == r->newer && v.raise == r->raise && v.park == r->park;

	if (r->action == ACT_SEND)
		same = same && v.hop == HOP && v.epoch == stamp;
	if (!same)
		fail_msg("%s (epoch %08x, claim %08x, protocol %u, icmp %u): action %u reason %u "
			 "note %u hop %x epoch %08x newer %u raise %u park %u", r->name, epoch,
			 claim, proto, icmp, v.action, v.reason, v.note, v.hop, v.epoch, v.newer,
			 v.raise, v.park);
}

static void check_claim(const struct row *r, uint32_t epoch, uint32_t claim)
{
	if (!claim && r->claim != NONE)
		return; /* 0 is no claim: an attempt never uses it */
	check(r, epoch, claim, 6, 0);
	check(r, epoch, claim, 17, 0);
	check(r, epoch, claim, 6, 1);
	check(r, epoch, claim, 17, 1);
}

static void run_row(void **state)
{
	const struct row *r = *state;

	for (size_t e = 0; e < sizeof(epochs) / sizeof(epochs[0]); e++) {
		if (r->claim == NONE)
			check_claim(r, epochs[e], 0);
		else if (r->claim == EQUAL)
			check_claim(r, epochs[e], epochs[e]);
		for (size_t d = 0; d < sizeof(distances) / sizeof(distances[0]); d++) {
			if (r->claim == OLDER)
				check_claim(r, epochs[e], epochs[e] - distances[d]);
			else if (r->claim == NEWER)
				check_claim(r, epochs[e], epochs[e] + distances[d]);
		}
	}
}

static void the_table_is_the_product(void **state)
{
	bool seen[FERRY_STATES][RELATIONS] = { { false } };

	(void)state;
	assert_int_equal(ROWS, FERRY_STATES * RELATIONS);
	for (size_t i = 0; i < ROWS; i++) {
		assert_false(seen[rows[i].state][rows[i].claim]);
		seen[rows[i].state][rows[i].claim] = true;
	}
}

/* LOCAL and OPENING send; a FREE unit is nobody's to stop; what we do not know does not. */
static void who_may_send(void **state)
{
	(void)state;
	for (uint32_t s = 0; s < 16; s++)
		assert_int_equal(!!may_send(s), s == FERRY_LOCAL || s == FERRY_OPENING ||
						s == FERRY_FREE);
}

static void a_word_is_its_parts(void **state)
{
	(void)state;
	for (uint32_t s = 0; s < 16; s++) {
		uint64_t w = FERRY_WORD(0xfedcba98, s, 0xffffffff);

		assert_int_equal(FERRY_WORD_EPOCH(w), 0xfedcba98);
		assert_int_equal(FERRY_WORD_STATE(w), s);
		assert_int_equal(FERRY_WORD_HOP(w), FERRY_HOP_MASK);
	}
}

int main(void)
{
	struct CMUnitTest t[ROWS + 3] = {
		[ROWS] = cmocka_unit_test(the_table_is_the_product),
		cmocka_unit_test(who_may_send),
		cmocka_unit_test(a_word_is_its_parts),
	};

	for (size_t i = 0; i < ROWS; i++)
		t[i] = (struct CMUnitTest){ .name = rows[i].name, .test_func = run_row,
					    .initial_state = (void *)&rows[i] };
	return _cmocka_run_group_tests("verdict", t, ROWS + 3, NULL, NULL) ? 1 : 0;
}
