// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs one row: sets the tables, builds the frame and, by the same independent encoder, what must
 * come out; compares verdict, every reason's counter, every octet, and what the unit's word and
 * record say afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <linux/bpf.h>
#include "rows.h"

bool produced[FERRY_R_COUNT];

struct variant {
	const struct row *row;
	enum kind kind;
	bool inner6, in6, out6;
	char name[160];
};

void check_bytes(const struct buf *got, const struct buf *want, const char *name)
{
	if (got->n != want->n)
		fail_msg("%s: %zu octets out, want %zu", name, got->n, want->n);
	for (size_t i = 0; i < want->n; i++)
		if (got->b[i] != want->b[i])
			fail_msg("%s: octet %zu is %02x, want %02x", name, i, got->b[i],
				 want->b[i]);
}

void check_reasons(const struct result *r, unsigned int reason, uint64_t notes, const char *name)
{
	for (unsigned int i = 0; i < FERRY_R_COUNT; i++) {
		uint64_t want = i == reason || notes & 1ULL << i;

		if (r->reasons[i] != want)
			fail_msg("%s: %s moved by %llu, want %llu (and %s by 1)", name,
				 reason_name(i), (unsigned long long)r->reasons[i],
				 (unsigned long long)want, reason_name(reason));
		if (want)
			produced[i] = true;
	}
}

static uint8_t proto_of(enum kind k)
{
	return k & (K_UDP | K_BOUND | K_ICMP_UDP) ? 17 : 6;
}

static uint32_t hop_of(const struct variant *v)
{
	return (v->row->entry ? v->row->hop : v->row->service) + v->out6;
}

static void set_tables(struct env *e, const struct variant *v)
{
	const struct row *r = v->row;
	uint32_t unit = r->unit ?: UNIT;
	struct ferry_flow f;

	flow_key(&f, v->inner6, proto_of(v->kind), v->kind == K_BOUND);
	if (r->entry) {
		if (unit < UNITS)
			e->words[unit] = FERRY_WORD(r->epoch, r->state, r->hop ? hop_of(v) : 0);
		assert_int_equal(v->kind == K_STASH ? env_flow_stash(e, &f, unit) :
						      env_flow(e, &f, unit), 0);
	}
	if (r->service)
		assert_int_equal(env_service(e, v->inner6, f.proto,
					     r->service == 1 || r->entry ? r->service : hop_of(v)),
				 0);
}

static size_t length_of(const struct variant *v)
{
	size_t mtu = hop_of(v) - v->out6 == HOP_JUMBO ? MTU_JUMBO : MTU;

	if (v->row->length == FIT || v->row->length == FIT_PLUS_1)
		return mtu - OVERHEAD(v->out6) + (v->row->length == FIT_PLUS_1);
	return v->row->length;
}

static void inner_of(struct buf *o, const struct variant *v, uint8_t tos)
{
	struct inner i = { .v6 = v->inner6, .icmp = v->kind & K_ICMP, .proto = proto_of(v->kind),
			   .ttl = v->row->ttl ?: 61, .tos = tos, .length = length_of(v) };

	build_inner(o, &i);
}

static void apply(struct buf *f, const struct variant *v, const struct patch *p)
{
	bool v6 = p->at == AT_INNER ? v->inner6 : v->in6;
	size_t inner = ETH + (v->row->tunnelled ? OVERHEAD(v->in6) : 0);
	const size_t at[] = { [AT_OUTER] = ETH, [AT_UDP] = GENEVE_AT(v->in6) - 8,
			      [AT_GENEVE] = GENEVE_AT(v->in6), [AT_OPTION] = OPTION_AT(v->in6),
			      [AT_INNER] = inner };

	if (p->at && (!p->only || p->only == (v6 ? 6 : 4)))
		f->b[at[p->at] + p->offset] = p->value;
}

static void frame_in(struct buf *f, const struct variant *v)
{
	const struct row *r = v->row;
	struct outer o = { .v6 = v->in6, .tos = r->outer_tos, .from = r->from ?: 2, .to = 1,
			   .hops = r->hops, .epoch = r->claim, .sport = 0xd00d,
			   .tag = r->tag ?: TAG };
	struct buf inner = { 0 };

	f->n = 0;
	inner_of(&inner, v, r->tos);
	eth_in(f, r->tunnelled ? v->in6 : v->inner6);
	if (r->tunnelled)
		build_outer(f, &o, v->inner6, inner.b, inner.n);
	else
		put(f, inner.b, inner.n);
	for (size_t i = 0; i < r->pad; i++)
		put8(f, 0xee);
	apply(f, v, &r->patch[0]);
	apply(f, v, &r->patch[1]);
}

static uint32_t frame_want(const struct env *e, struct buf *f, const struct variant *v,
			   const struct buf *in)
{
	const struct row *r = v->row;
	uint8_t tos = r->tos | (r->ce ? 3 : 0);
	struct outer o = { .v6 = v->out6, .tos = tos & 3, .from = 1, .to = hop_of(v),
			   .hops = r->hops + 1, .epoch = r->stamp, .tag = TAG };
	struct buf inner = { 0 };
	struct ferry_flow flow;

	f->n = 0;
	if (r->want == DROP)
		return XDP_DROP;
	if (r->want == PASS || (r->want == DELIVER && !r->tunnelled)) {
		put(f, in->b, in->n);
		return XDP_PASS;
	}
	inner_of(&inner, v, tos);
	if (r->want == DELIVER) {
		eth_in(f, v->inner6);
		put(f, inner.b, inner.n);
		return XDP_PASS;
	}
	flow_key(&flow, v->inner6, proto_of(v->kind), false);
	o.sport = flow_sport(e, &flow);
	eth_out(f, v->out6, o.to);
	build_outer(f, &o, v->inner6, inner.b, inner.n);
	return (hop_of(v) & ~1U) == HOP_OTHER || (hop_of(v) & ~1U) == HOP_VETH ? XDP_REDIRECT :
										 XDP_TX;
}

static void check_unit(const struct env *e, const struct variant *v)
{
	const struct row *r = v->row;
	uint64_t word = FERRY_WORD(r->raised ?: r->epoch, r->state, r->hop ? hop_of(v) : 0);

	if (!r->entry || r->unit)
		return;
	if (e->words[UNIT] != word)
		fail_msg("%s: word %016llx, want %016llx", v->name,
			 (unsigned long long)e->words[UNIT], (unsigned long long)word);
	if (e->records[UNIT].newer != r->newer || e->records[UNIT].lost != r->lost)
		fail_msg("%s: newer %u, lost %llu; want %u, %u", v->name, e->records[UNIT].newer,
			 (unsigned long long)e->records[UNIT].lost, r->newer, r->lost);
}

static unsigned int reason_of(const struct variant *v)
{
	if (v->row->reason != R_LOST)
		return v->row->reason;
	if (v->kind & K_ICMP)
		return FERRY_R_LOST_ICMP;
	return proto_of(v->kind) == 17 ? FERRY_R_LOST_UDP : FERRY_R_LOST_TCP;
}

/* An ICMP error is noted where it was looked up: not where the tunnel or its inside was refused. */
static uint64_t notes_of(const struct variant *v)
{
	unsigned int r = v->row->reason;
	bool refused = r >= FERRY_R_NOT_IP && r <= FERRY_R_ECN_ILLEGAL;

	return v->row->notes | (v->kind & K_ICMP && !refused ? NOTE(ICMP) : 0);
}

static void variant_run(struct env *e, struct variant *v)
{
	static struct buf in, want;
	static struct result got;
	uint32_t verdict;

	snprintf(v->name, sizeof(v->name), "%s [kind %d, inner %d, in %d, out %d]", v->row->name,
		 v->kind, v->inner6 ? 6 : 4, v->row->tunnelled ? v->in6 ? 6 : 4 : 0,
		 v->out6 ? 6 : 4);
	set_tables(e, v);
	frame_in(&in, v);
	verdict = frame_want(e, &want, v, &in);
	assert_int_equal(env_steer(e, &in, v->row->ifindex ?: IFINDEX_LO, 1, &got), 0);
	if (got.verdict != verdict)
		fail_msg("%s: verdict %u, want %u", v->name, got.verdict, verdict);
	check_reasons(&got, reason_of(v), notes_of(v), v->name);
	if (verdict != XDP_DROP)
		check_bytes(&got.out, &want, v->name);
	check_unit(e, v);
	env_clear(e);
}

void row_run(struct env *e, const struct row *row)
{
	unsigned int kinds = row->kinds ?: K_TCP | K_UDP;

	env_clear(e); /* a row that failed may have left something */
	for (unsigned int bits = 0; bits < 8 * 64; bits++) {
		struct variant v = { .row = row, .kind = 1 << (bits >> 3), .inner6 = bits & 1,
				     .in6 = bits & 2, .out6 = bits & 4 };

		if (v.kind > K_ALL)
			break;
		if (v.kind & kinds && (row->tunnelled || !v.in6) &&
		    (row->hop || row->service > 1 || !v.out6))
			variant_run(e, &v);
	}
}
