// SPDX-License-Identifier: BSD-2-Clause
/*
 * A frozen socket still takes and acknowledges what arrives, and TCP_INFO counts it.
 * Relied on: ctl/move/origin.c (fenced before it is frozen), ctl/repair/tcp.c (repair_arrived).
 * Kernel: net/ipv4/tcp_input.c, tcp_rcv_established: repair is not asked for.
 */
#include "rule.h"

static void shown(int family)
{
	struct pair p = connected(family);
	struct tcp_info before, after;

	need(!freeze(p.server));
	before = info(p.server);
	need(write(p.client, "ferry", 5) == 5);
	rule(until(ask(p.client, SIOCOUTQ) == 0), "a frozen socket does not acknowledge");
	after = info(p.server);
	rule(after.tcpi_bytes_received == before.tcpi_bytes_received + 5,
	     "tcpi_bytes_received does not count what a frozen socket takes");
	rule(after.tcpi_segs_in == before.tcpi_segs_in + 1,
	     "tcpi_segs_in does not count what a frozen socket takes");
	need(ask(p.server, SIOCINQ) == 5);
	end(&p);
}

int main(void)
{
	return for_each_family(shown);
}
