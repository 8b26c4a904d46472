// SPDX-License-Identifier: BSD-2-Clause
/*
 * A frozen socket sends what is unsent; with its send queue selected only its timers still do.
 * Relied on: ctl/repair/tcp.c (extract_send), bpf/egress.bpf.c (the fence stops the timers' too).
 * Kernel: net/ipv4/tcp_output.c, tcp_write_xmit: "tp->repair && tp->repair_queue".
 */
#include "rule.h"

/* 64 KiB that leave at a megabyte a second. */
static struct pair paced(int family)
{
	static char data[65536];
	struct pair p = connected(family);

	need(!set(p.server, SOL_SOCKET, SO_SNDBUFFORCE, 1 << 20) &&
	     !set(p.server, SOL_SOCKET, SO_MAX_PACING_RATE, 1000000));
	need(write(p.server, data, sizeof(data)) == sizeof(data));
	return p;
}

/* What p, with this queue selected, sends while another frozen socket sends half of its queue. The
 * retransmission timer comes after 200 ms: 0 where this took so long that it may have come. */
static bool shown_of(int family, int queue, bool sends)
{
	struct pair other = paced(family), p = paced(family);
	int raw = witness(family), half = ask(other.server, SIOCOUTQNSD) / 2, count;
	uint64_t began = now_ms();

	need(!freeze(p.server) && !set_tcp(p.server, TCP_REPAIR_QUEUE, queue));
	need(!freeze(other.server) && half > 1500 && ask(p.server, SIOCOUTQNSD) > 1500);
	seen(raw, family, port_of(p.server), ANY);
	need(until(ask(other.server, SIOCOUTQNSD) <= half));
	count = seen(raw, family, port_of(p.server), ANY);
	while (sends && !count && now_ms() - began < 190) /* its turn may come a little later */
		count = seen(raw, family, port_of(p.server), ANY);
	if (now_ms() - began >= 190)
		return false;
	rule(sends == (count > 0), "a frozen socket with queue %d selected sends %d packets", queue,
	     count);
	rule(until(seen(raw, family, port_of(p.server), ANY) > 0), "the timers send nothing");
	close(raw);
	end(&p);
	end(&other);
	return true;
}

static void shown(int family)
{
	int fd = open("/proc/sys/net/ipv4/tcp_early_retrans", O_WRONLY);

	need(write(fd, "0", 1) == 1 && !close(fd)); /* no probe for a lost tail, a few ms after */
	need(until(shown_of(family, TCP_NO_QUEUE, true)));
	need(until(shown_of(family, TCP_SEND_QUEUE, false)));
}

int main(void)
{
	return for_each_family(shown);
}
