// SPDX-License-Identifier: BSD-2-Clause
/*
 * The frames of frames.tsv, each in two worlds (whose network is ours) and in these ways: as it
 * came; cut at every length; cut with the IP length corrected; in a tunnel, IPv4 and IPv6; in a
 * tunnel and cut. Lengths below an Ethernet header cannot be handed to TEST_RUN: they are
 * tests/unit/test_parse.c's.
 * Invariant checked throughout: PASS is bit for bit, or exactly without its tunnel; a packet sent
 * is exactly the IP packet behind outer headers; only what came from the tunnel is ever dropped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <linux/bpf.h>
#include "rows.h"
#include "groups.h"

#define TABLE "tests/packet/frames.tsv"
#define ROWS_MAX 256
#define WORLDS 2
#define EPOCH 5 /* of the word, and of the F frames */
#define SELF 2

struct frame_row {
	char name[200];
	unsigned int reason[WORLDS];
	bool icmp[WORLDS];
	struct buf frame;
};

static struct frame_row *rows;
static size_t count;
static struct env env;
static int world;

static bool reason_parse(const char *s, unsigned int *reason, bool *icmp)
{
	size_t n = strcspn(s, "+");

	*icmp = s[n];
	for (*reason = 0; *reason < FERRY_R_COUNT; (*reason)++)
		if (strlen(reason_name(*reason)) == n && !strncmp(s, reason_name(*reason), n))
			return true;
	return false;
}

static bool row_parse(struct frame_row *r, char *line)
{
	char *field[5];

	for (int i = 0; i < 5; i++)
		if (!(field[i] = strsep(&line, "\t\n")))
			return false;
	snprintf(r->name, sizeof(r->name), "%s: %s", field[0], field[3]);
	for (int w = 0; w < WORLDS; w++)
		if (!reason_parse(field[1 + w], &r->reason[w], &r->icmp[w]))
			return false;
	for (const char *h = field[4]; *h; h += 2) {
		unsigned int octet;

		if (sscanf(h, "%2x", &octet) != 1)
			return false;
		put8(&r->frame, octet);
	}
	return r->frame.n > ETH;
}

static int table_read(void)
{
	FILE *f = fopen(TABLE, "r");
	char line[2048];

	rows = calloc(ROWS_MAX, sizeof(*rows));
	if (!f || !rows) {
		perror(TABLE);
		return -1;
	}
	while (fgets(line, sizeof(line), f)) {
		if (*line == '#')
			continue;
		if (count == ROWS_MAX || !row_parse(&rows[count++], line)) {
			fprintf(stderr, "%s: bad row %zu\n", TABLE, count);
			return -1;
		}
	}
	fclose(f);
	return 0;
}

static unsigned int ethertype(const struct buf *f)
{
	return f->b[12] << 8 | f->b[13];
}

/* Of the IP packet at offset, by its own length field; 0: not IP. */
static size_t ip_length(const struct buf *f, size_t at, unsigned int type)
{
	const uint8_t *ip = f->b + at;

	if (type == 0x0800)
		return ip[2] << 8 | ip[3];
	return type == 0x86dd ? 40 + (ip[4] << 8 | ip[5]) : 0;
}

static size_t tunnel_of(const struct buf *f)
{
	return ethertype(f) == 0x86dd ? OVERHEAD(true) : OVERHEAD(false);
}

/* What must be sent for the IP packet at offset; hops are those it has had. */
static void want_sent(struct buf *o, const struct buf *f, size_t at, bool v6, bool out6,
		      uint8_t hops, const struct result *got)
{
	const uint8_t *ip = f->b + at;
	struct outer t = { .v6 = out6, .from = SELF, .to = HOP_OTHER + out6, .hops = hops + 1,
			   .epoch = EPOCH, .tag = TAG };

	t.tos = (v6 ? ip[1] >> 4 : ip[1]) & 3;
	/* the entropy: checked to the bit in rows.c, here to be dynamic */
	t.sport = got->out.b[GENEVE_AT(out6) - 8] << 8 | got->out.b[GENEVE_AT(out6) - 7];
	assert_true(t.sport >= 0xc000);
	o->n = 0;
	eth_out(o, out6, t.to);
	build_outer(o, &t, v6, ip, ip_length(f, at, v6 ? 0x86dd : 0x0800));
}

static bool dropped(unsigned int reason)
{
	return reason >= FERRY_R_ENCAP_UNKNOWN_PEER && reason <= FERRY_R_ECN_ILLEGAL;
}

/* Runs f; whatever the reason is, verdict and octets must be its. tunnelled: it has a tunnel of
 * ours, from a node. Returns the reason. */
static unsigned int run_consistent(const struct buf *f, bool tunnelled, bool out6, const char *name)
{
	static struct result got;
	static struct buf want;
	unsigned int reason = 0;
	size_t at = ETH + (tunnelled ? tunnel_of(f) : 0);
	bool v6 = tunnelled ? f->b[GENEVE_AT(ethertype(f) == 0x86dd) + 2] == 0x86 :
			      ethertype(f) == 0x86dd;
	uint32_t verdict = XDP_PASS;
	uint64_t notes = 0;

	assert_int_equal(env_steer(&env, f, IFINDEX_LO, 1, &got), 0);
	while (reason < FERRY_R_EPOCH_REUSE && !got.reasons[reason])
		reason++;
	notes = got.reasons[FERRY_R_ICMP] ? NOTE(ICMP) : 0;
	check_reasons(&got, reason, notes, name);
	want.n = 0;
	put(&want, f->b, f->n);
	if (reason == FERRY_R_REMOTE) {
		verdict = XDP_REDIRECT;
		want_sent(&want, f, at, v6, out6, tunnelled, &got);
	} else if (dropped(reason)) {
		verdict = XDP_DROP;
	} else if (reason == FERRY_R_LOCAL_UNKNOWN) {
		if (!tunnelled)
			fail_msg("%s: stripped, but had no tunnel", name);
		want.n = 0;
		put(&want, f->b, 12);
		put16(&want, v6 ? 0x86dd : 0x0800);
		put(&want, f->b + at, f->n - at);
	}
	if (got.verdict != verdict)
		fail_msg("%s: %s with verdict %u", name, reason_name(reason), got.verdict);
	if (verdict != XDP_DROP)
		check_bytes(&got.out, &want, name);
	return reason;
}

static void flows(bool out6)
{
	static const uint8_t protos[] = { 6, 17 };

	env_clear(&env);
	env.words[UNIT] = FERRY_WORD(EPOCH, FERRY_REMOTE, HOP_OTHER + out6);
	for (int i = 0; i < 4; i++) {
		struct ferry_flow f;

		flow_key(&f, i & 1, protos[i >> 1], false);
		assert_int_equal(env_flow(&env, &f, UNIT), 0);
	}
}

/* Ours by its wire format: F frames in the world where fe44 is ours. */
static bool has_tunnel(const struct frame_row *r)
{
	return world && r->name[0] == 'F' && r->reason[world] == FERRY_R_REMOTE;
}

static void want_reason(unsigned int got, unsigned int want, const char *name)
{
	if (got != want)
		fail_msg("%s: %s, want %s", name, reason_name(got), reason_name(want));
}

static void whole_and_cut(const struct frame_row *r, bool out6)
{
	size_t ip = ETH + ip_length(&r->frame, ETH, ethertype(&r->frame));
	struct buf f = r->frame;
	char name[240];

	for (f.n = ETH; f.n <= r->frame.n; f.n++) {
		unsigned int got;

		snprintf(name, sizeof(name), "%s, %zu of %zu", r->name, f.n, r->frame.n);
		got = run_consistent(&f, has_tunnel(r), out6, name);
		if (f.n == r->frame.n || (f.n >= ip && r->reason[world] != FERRY_R_NOT_IP))
			want_reason(got, r->reason[world], name);
		else if (got != FERRY_R_VLAN && got != FERRY_R_NOT_IP)
			want_reason(got, FERRY_R_MALFORMED, name);
	}
}

/* Cut where the IP packet says that it ends there. */
static void cut_and_corrected(const struct frame_row *r, bool out6)
{
	bool v6 = ethertype(&r->frame) == 0x86dd;
	struct buf f = r->frame;
	char name[240];

	if (r->reason[world] == FERRY_R_VLAN || r->reason[world] == FERRY_R_NOT_IP)
		return;
	for (f.n = ETH + (v6 ? 40 : 20); f.n <= r->frame.n; f.n++) {
		size_t length = f.n - ETH - (v6 ? 40 : 0);
		unsigned int got;

		f.b[ETH + (v6 ? 4 : 2)] = length >> 8;
		f.b[ETH + (v6 ? 5 : 3)] = length;
		snprintf(name, sizeof(name), "%s, corrected to %zu of %zu", r->name, f.n,
			 r->frame.n);
		got = run_consistent(&f, has_tunnel(r), out6, name);
		if (f.n < ETH + (v6 ? 48U : 28U) && got == FERRY_R_REMOTE)
			fail_msg("%s: placed without 8 octets of L4", name);
	}
}

/* In a tunnel, a tunnel is a UDP packet like another; also one that is cut short (F09). */
static bool not_unpacked_twice(const struct frame_row *r)
{
	unsigned int own = r->reason[world];

	return own == FERRY_R_FOREIGN || own == FERRY_R_FOREIGN_VNI || dropped(own) ||
	       has_tunnel(r) || (r->name[0] == 'F' && own == FERRY_R_MALFORMED);
}

static void tunnelled(const struct frame_row *r, bool in6, bool out6)
{
	bool v6 = ethertype(&r->frame) == 0x86dd;
	size_t n = ip_length(&r->frame, ETH, ethertype(&r->frame));
	struct outer o = { .v6 = in6, .from = 1, .to = SELF, .epoch = EPOCH, .hops = 1,
			   .sport = 0xc0de, .tag = TAG };
	char name[240];

	if (!n || n > r->frame.n - ETH)
		n = r->frame.n - ETH;
	for (size_t cut = 0; cut <= n; cut++) {
		unsigned int reason = FERRY_R_INNER_BAD, own = r->reason[world];
		static struct buf f;

		f.n = 0;
		eth_in(&f, in6);
		build_outer(&f, &o, v6, r->frame.b + ETH, cut);
		snprintf(name, sizeof(name), "%s, in a tunnel, %zu of %zu", r->name, cut, n);
		if (cut == n && own == FERRY_R_REMOTE && !has_tunnel(r))
			reason = FERRY_R_REMOTE;
		else if (cut == n && not_unpacked_twice(r))
			reason = FERRY_R_LOCAL_UNKNOWN;
		want_reason(run_consistent(&f, true, out6, name), reason, name);
	}
}

static void run_frame(void **state)
{
	const struct frame_row *r = *state;

	for (int i = 0; i < 2; i++) {
		flows(i);
		whole_and_cut(r, i);
		cut_and_corrected(r, i);
		if (!world || r->reason[world] == FERRY_R_VLAN ||
		    r->reason[world] == FERRY_R_NOT_IP)
			continue;
		tunnelled(r, false, i);
		tunnelled(r, true, i);
	}
}

static int setup(void **state)
{
	static const uint32_t vni[WORLDS] = { 0x64, 0xfe44 };

	(void)state;
	return env_open(&env, (struct world){ .self = SELF, .vni = vni[world] });
}

static int teardown(void **state)
{
	(void)state;
	env_close(&env);
	return 0;
}

int run_corpus(void)
{
	static const char *const names[WORLDS] = { "frames, VNI 64h ours", "frames, fe44 ours" };
	struct CMUnitTest *t = calloc(ROWS_MAX, sizeof(*t));
	int failed = 0;

	if (!t || table_read())
		return 1;
	for (size_t i = 0; i < count; i++)
		t[i] = (struct CMUnitTest){ .name = rows[i].name, .test_func = run_frame,
					    .initial_state = &rows[i] };
	for (world = 0; world < WORLDS; world++)
		failed += _cmocka_run_group_tests(names[world], t, count, setup, teardown);
	free(rows);
	free(t);
	return failed;
}
