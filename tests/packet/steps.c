// SPDX-License-Identifier: BSD-2-Clause
/*
 * What takes more than one packet, or another world than the rows': the switch of a live template,
 * headroom used up, a record over several stamps, no tag configured, the negative controls'
 * switches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "steer.skel.h"
#include "rows.h"
#include "groups.h"

static struct env env;
static struct result got;
static struct buf in, want;

static void inner_packet(struct buf *o, bool v6, uint8_t tos)
{
	struct inner i = { .v6 = v6, .proto = 6, .ttl = 61, .tos = tos };

	build_inner(o, &i);
}

static void raw(struct buf *f, bool v6)
{
	f->n = 0;
	eth_in(f, v6);
	inner_packet(f, v6, 0);
}

static void tunnel(struct buf *f, bool v6, uint32_t claim, const char *tag, uint8_t outer_tos,
		   uint8_t tos)
{
	struct outer o = { .v6 = v6, .tos = outer_tos, .from = 2, .to = 1, .epoch = claim,
			   .sport = 0xd00d, .tag = tag };
	struct buf inner = { 0 };

	inner_packet(&inner, v6, tos);
	f->n = 0;
	eth_in(f, v6);
	build_outer(f, &o, v6, inner.b, inner.n);
}

static void hold(bool v6, uint64_t word)
{
	struct ferry_flow f;

	env_clear(&env);
	flow_key(&f, v6, 6, false);
	assert_int_equal(env_flow(&env, &f, UNIT), 0);
	env.words[UNIT] = word;
}

static void steer(uint32_t verdict, unsigned int reason, uint64_t notes)
{
	assert_int_equal(env_steer(&env, &in, IFINDEX_LO, 1, &got), 0);
	assert_int_equal(got.verdict, verdict);
	check_reasons(&got, reason, notes, "step");
}

/* The other template is written, then live is set: from the next packet on it is the one. */
static void a_live_template_is_switched(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct outer o = { .v6 = v6, .from = 1, .hops = 1, .epoch = 7, .tag = TAG };
		struct ferry_flow f;

		hold(v6, FERRY_WORD(7, FERRY_REMOTE, HOP_SAME + v6));
		flow_key(&f, v6, 6, false);
		o.sport = flow_sport(&env, &f);
		raw(&in, v6);
		for (uint32_t live = 1; live <= 2; live++) {
			o.to = HOP_SAME + v6 + (live - 1) * 100;
			want.n = 0;
			eth_out(&want, v6, o.to);
			build_outer(&want, &o, v6, in.b + ETH, in.n - ETH);
			assert_int_equal(env_live(&env, HOP_SAME + v6, live), 0);
			steer(XDP_TX, FERRY_R_REMOTE, 0);
			check_bytes(&got.out, &want, live == 1 ? "first" : "second");
		}
		assert_int_equal(env_live(&env, HOP_SAME + v6, 3), 0);
		steer(XDP_DROP, FERRY_R_UNRESOLVED, 0);
		assert_int_equal(env_live(&env, HOP_SAME + v6, 1), 0);
	}
}

/* TEST_RUN's repeat hands the program its own output, and 256 octets of headroom in all (40 of
 * them the kernel's): three IPv4 tunnels fit in, or two IPv6 ones. On the way each tunnel is
 * itself a packet of a service that lives at node 2 or 3. */
static void headroom_runs_out(void **state)
{
	(void)state;
	for (uint32_t v6 = 0; v6 < 2; v6++) {
		struct ferry_service_key key = { .port = htons(6081), .proto = 17 };
		struct ferry_service s = { .hop = HOP_SAME + v6 };
		uint32_t fit = v6 ? 2 : 3;
		int services = bpf_map__fd(env.steer->maps.services);

		env_clear(&env);
		addr_node(key.addr, v6, s.hop);
		assert_int_equal(bpf_map_update_elem(services, &key, &s, 0), 0);
		assert_int_equal(env_service(&env, v6, 6, s.hop), 0);
		raw(&in, v6);
		assert_int_equal(env_steer(&env, &in, IFINDEX_LO, fit, &got), 0);
		assert_int_equal(got.verdict, XDP_TX);
		assert_int_equal(got.reasons[FERRY_R_SERVICE], fit);
		assert_int_equal(got.out.n, in.n + fit * OVERHEAD(v6));
		assert_int_equal(env_steer(&env, &in, IFINDEX_LO, fit + 1, &got), 0);
		assert_int_equal(got.verdict, XDP_DROP);
		assert_int_equal(got.reasons[FERRY_R_SERVICE], fit);
		assert_int_equal(got.reasons[FERRY_R_HEADROOM], 1);
		produced[FERRY_R_HEADROOM] = true;
	}
}

static void the_record_keeps_the_newest_stamp(void **state)
{
	static const uint32_t stamps[][2] = {
		{ 105, 105 }, { 103, 105 }, { 100, 105 }, { 107, 107 },
	};

	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		hold(v6, FERRY_WORD(100, FERRY_FENCED, 3));
		for (int i = 0; i < 4; i++) {
			tunnel(&in, v6, stamps[i][0], TAG, 0, 0);
			steer(XDP_DROP, FERRY_R_LOST_TCP, 0);
			assert_int_equal(env.records[UNIT].newer, stamps[i][1]);
		}
		assert_int_equal(env.records[UNIT].lost, 4);
		assert_int_equal(env.words[UNIT], FERRY_WORD(100, FERRY_FENCED, 3));
	}
}

static void a_raised_word_makes_the_old_claim_old(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		hold(v6, FERRY_WORD(100, FERRY_LOCAL, 0));
		tunnel(&in, v6, 102, TAG, 0, 0);
		steer(XDP_PASS, FERRY_R_LOCAL, NOTE(EPOCH_REUSE));
		assert_int_equal(env.words[UNIT], FERRY_WORD(102, FERRY_LOCAL, 0));
		steer(XDP_PASS, FERRY_R_LOCAL, 0);
		tunnel(&in, v6, 101, TAG, 0, 0);
		steer(XDP_PASS, FERRY_R_LOCAL, NOTE(EPOCH_OLD));
		assert_int_equal(env.words[UNIT], FERRY_WORD(102, FERRY_LOCAL, 0));
	}
}

/* RFC 1624's corners: whatever the header's checksum is, it is right after CE was copied in. */
static void ce_keeps_every_checksum_right(void **state)
{
	(void)state;
	hold(false, FERRY_WORD(1, FERRY_LOCAL, 0));
	for (uint32_t id = 0; id < 0x10000; id += 7) {
		uint8_t *ip = in.b + ETH + OVERHEAD(false);
		uint16_t sum;

		tunnel(&in, false, 0, TAG, 3, id & 1 ? 1 : 0xfe);
		ip[4] = id >> 8, ip[5] = id, ip[10] = 0, ip[11] = 0;
		sum = checksum(ip, 20, 0);
		ip[10] = sum >> 8, ip[11] = sum;
		steer(XDP_PASS, FERRY_R_LOCAL, NOTE(CE));
		assert_int_equal(got.out.b[ETH + 1], id & 1 ? 3 : 0xff);
		if (checksum(got.out.b + ETH, 20, 0))
			fail_msg("id %04x: checksum %02x%02x", id, got.out.b[ETH + 10],
				 got.out.b[ETH + 11]);
	}
}

/* The template's sum, length and DS field together can carry twice, if the sum is just so: its
 * TTL and identification are chosen for it (of the sum in memory order, low and high octet). */
static void every_outer_checksum_is_right(void **state)
{
	int fd = bpf_map__fd(env.steer->maps.nexthops);
	uint32_t hop = HOP_SAME;
	struct ferry_nexthop nh;
	struct ferry_template *t = &nh.template[0];

	(void)state;
	hold(false, FERRY_WORD(1, FERRY_REMOTE, HOP_SAME));
	assert_int_equal(bpf_map_lookup_elem(fd, &hop, &nh), 0);
	t->header[ETH + 8] += 0xfc - (t->csum & 0xff);
	t->header[ETH + 5] += 0xfe - (t->csum >> 8);
	t->csum = 0xfefc;
	assert_int_equal(bpf_map_update_elem(fd, &hop, &nh, 0), 0);
	for (int ecn = 0; ecn < 4; ecn += 3) {
		for (size_t n = 40; n <= MTU - OVERHEAD(false); n++) {
			struct inner i = { .proto = 6, .ttl = 61, .tos = ecn, .length = n };

			in.n = 0;
			eth_in(&in, false);
			build_inner(&in, &i);
			steer(XDP_TX, FERRY_R_REMOTE, 0);
			if (checksum(got.out.b + ETH, 20, 0))
				fail_msg("%zu octets, ECN %d: checksum %02x%02x", n, ecn,
					 got.out.b[ETH + 10], got.out.b[ETH + 11]);
		}
	}
}

/* Entropy (RFC 8926 section 3.3): flows spread over outer ports, one flow keeps its own. */
static void flows_spread_over_outer_ports(void **state)
{
	bool seen[0x10000] = { false };
	int ports = 0;

	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		env_clear(&env);
		assert_int_equal(env_service(&env, v6, 6, HOP_SAME), 0);
		for (int i = 0; i < 64; i++) {
			uint16_t first = 0, port;

			raw(&in, v6);
			in.b[ETH + (v6 ? 41 : 21)] = i; /* source port */
			for (int again = 0; again < 2; again++) {
				steer(XDP_TX, FERRY_R_SERVICE, 0);
				port = got.out.b[ETH + 20] << 8 | got.out.b[ETH + 21];
				assert_true(port >= 0xc000);
				assert_true(!again || port == first);
				first = port;
			}
			ports += !seen[port];
			seen[port] = true;
		}
	}
	assert_true(ports > 120); /* of 128; expected 127.5 */
}

/* With one bucket the hash hides nothing: only what the reader compares keeps flows apart. */
static void a_flow_is_all_of_its_tuple(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		int v6 = i & 1, stash = i >> 1, last = v6 ? 44 : 24;
		struct ferry_flow f;

		env_clear(&env);
		env.words[UNIT] = FERRY_WORD(1, FERRY_LOCAL, 0);
		flow_key(&f, v6, 6, false);
		assert_int_equal(stash ? env_flow_stash(&env, &f, UNIT) : env_flow(&env, &f, UNIT),
				 0);
		raw(&in, v6);
		steer(XDP_PASS, FERRY_R_LOCAL, 0);
		for (int octet = v6 ? 8 : 12; octet < last; octet++) {
			in.b[ETH + octet] ^= 0x40;
			steer(XDP_PASS, FERRY_R_FOREIGN, 0);
			in.b[ETH + octet] ^= 0x40;
		}
		in.b[ETH + (v6 ? 6 : 9)] = 17;
		steer(XDP_PASS, FERRY_R_FOREIGN, 0);
	}
}

static int open_one_bucket(void **state)
{
	(void)state;
	return env_open(&env, (struct world){ .self = 1, .vni = 0xfe44, .buckets = 1 });
}

static int open_ours(void **state)
{
	(void)state;
	return env_open(&env, WORLD);
}

static int open_without_tag(void **state)
{
	(void)state;
	return env_open(&env, (struct world){ .self = 1, .vni = 0xfe44, .open = true });
}

static int open_without_fence(void **state)
{
	(void)state;
	return env_open(&env, (struct world){ .self = 1, .vni = 0xfe44, .no_fence = true });
}

static int close_it(void **state)
{
	(void)state;
	env_close(&env);
	return 0;
}

static void without_a_tag_none_is_asked_for(void **state)
{
	(void)state;
	hold(false, FERRY_WORD(1, FERRY_LOCAL, 0));
	tunnel(&in, false, 0, "\0\0\0\0\0\0\0\0", 0, 0);
	steer(XDP_PASS, FERRY_R_LOCAL, 0);
	tunnel(&in, false, 0, "anything", 0, 0);
	steer(XDP_PASS, FERRY_R_LOCAL, 0);
}

static void without_an_address_nothing_is_for_us(void **state)
{
	(void)state;
	hold(true, FERRY_WORD(1, FERRY_LOCAL, 0));
	tunnel(&in, true, 0, TAG, 0, 0);
	steer(XDP_PASS, FERRY_R_FOREIGN, 0);
	check_bytes(&got.out, &in, "to our address, not configured");
	memset(in.b + ETH + 24, 0, 16);
	steer(XDP_PASS, FERRY_R_FOREIGN, 0);
	check_bytes(&got.out, &in, "to ::");
}

static void the_controls_open_the_fence(void **state)
{
	(void)state;
	for (int v6 = 0; v6 < 2; v6++) {
		struct inner i = { .v6 = v6, .proto = 6, .ttl = 64, .reply = true };

		hold(v6, FERRY_WORD(5, FERRY_FENCED, 3));
		raw(&in, v6);
		steer(XDP_PASS, FERRY_R_LOCAL, 0);
		in.n = 0;
		eth_in(&in, v6);
		build_inner(&in, &i);
		assert_int_equal(env_egress(&env, &in, 0, &got), 0);
		assert_int_equal(got.verdict, 0xffffffff);
		check_reasons(&got, FERRY_R_COUNT, 0, "egress");
	}
}

int run_steps(void)
{
	const struct CMUnitTest ours[] = {
		cmocka_unit_test(a_live_template_is_switched),
		cmocka_unit_test(headroom_runs_out),
		cmocka_unit_test(the_record_keeps_the_newest_stamp),
		cmocka_unit_test(a_raised_word_makes_the_old_claim_old),
		cmocka_unit_test(ce_keeps_every_checksum_right),
		cmocka_unit_test(flows_spread_over_outer_ports),
		cmocka_unit_test(every_outer_checksum_is_right), /* leaves its template */
	};
	const struct CMUnitTest one_bucket[] = {
		cmocka_unit_test(a_flow_is_all_of_its_tuple),
	};
	const struct CMUnitTest without_tag[] = {
		cmocka_unit_test(without_a_tag_none_is_asked_for),
		cmocka_unit_test(without_an_address_nothing_is_for_us),
	};
	const struct CMUnitTest without_fence[] = {
		cmocka_unit_test(the_controls_open_the_fence),
	};

	return cmocka_run_group_tests_name("steps", ours, open_ours, close_it) +
	       cmocka_run_group_tests_name("one bucket", one_bucket, open_one_bucket, close_it) +
	       cmocka_run_group_tests_name("no tag", without_tag, open_without_tag, close_it) +
	       cmocka_run_group_tests_name("no fence", without_fence, open_without_fence, close_it);
}
