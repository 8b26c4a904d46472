// SPDX-License-Identifier: BSD-2-Clause
/*
 * libFuzzer target: bpf/parse.h on any octets, as steer calls it. ASan sees a read past the frame;
 * the invariants of parse.h's opening comment are checked here. Seeds: tests/packet/frames.tsv.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "../../bpf/parse.h"

static void must(int truth)
{
	if (!truth)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ctx_t ctx = { data, data + size };
	struct cursor c = { &ctx, 0 };
	struct packet p = {};
	int type = parse_eth(&c), next;

	must(size >= ETH_HLEN || type == -FERRY_R_MALFORMED);
	if (type < 0)
		return 0;
	next = parse_ip(&ctx, &p, c.offset, type, size - c.offset);
	if (next < 0) {
		must(next > -FERRY_R_FOREIGN_VNI && next <= -FERRY_R_NOT_IP);
		return 0;
	}
	must(next == IPPROTO_TCP || next == IPPROTO_UDP);
	must(p.t.proto == next && p.t.v6 == (type == ETH_P_IPV6));
	must(p.length <= size - ETH_HLEN);
	/* ports lie inside of the IP packet, at l4 or in what the ICMP error there quotes */
	must(p.l4 + (p.icmp ? 8 + (p.t.v6 ? 40 : 20) : 0) + 8 <= ETH_HLEN + p.length);
	if (!p.icmp)
		must(!__builtin_memcmp(&p.t.ports, data + p.l4, sizeof(p.t.ports)));
	return 0;
}
