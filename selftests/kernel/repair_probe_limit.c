// SPDX-License-Identifier: BSD-2-Clause
/*
 * A second window probe within half a second is not answered.
 * Relied on: ctl/repair/restore.c (repair_thaw sends none, so that repair_probe's is answered).
 * Kernel: net/ipv4/tcp_input.c, tcp_oow_rate_limited; net.ipv4.tcp_invalid_ratelimit is 500 ms.
 */
#include "rule.h"

/* Answers of the client to as many probes; how long they took. */
static int answers(int family, int probes, uint64_t *ms)
{
	struct pair p = connected(family);
	int raw = witness(family), count;
	uint64_t began = now_ms();

	for (int i = 0; i < probes; i++)
		need(!freeze(p.server) && !set_tcp(p.server, TCP_REPAIR, TCP_REPAIR_OFF));
	count = seen(raw, family, port_of(p.client), ANY);
	*ms = now_ms() - began;
	end(&p);
	close(raw);
	return count;
}

static void shown(int family)
{
	uint64_t ms;
	int count;

	rule(answers(family, 1, &ms) == 1, "a window probe is not answered");
	do /* until it was quick enough to say something */
		count = answers(family, 3, &ms);
	while (ms >= 500);
	rule(count == 1, "three window probes within %d ms are answered %d times", (int)ms, count);
}

int main(void)
{
	return for_each_family(shown);
}
