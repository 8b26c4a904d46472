// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect() in repair sends nothing and is ESTABLISHED at once, even where nobody is.
 * Relied on: ctl/repair/restore.c (repair_claim tries a tuple before it is there).
 * Kernel: net/ipv4/tcp_output.c, tcp_connect: tcp_finish_connect in repair.
 */
#include "rule.h"

static void shown(int family)
{
	int raw = witness(family), fd = restored(family), other;

	rule(info(fd).tcpi_state == ESTABLISHED, "connect() in repair does not connect at once");
	rule(!seen(raw, family, 7001, ANY), "connect() in repair sends a packet");
	close(fd);
	other = socket(family, SOCK_STREAM, 0);
	need(!bind_to(other, family, 7003));
	rule(connect_to(other, family, 7002) == -ECONNREFUSED &&
		     seen(raw, family, 7003, ANY) == 1,
	     "connect() without repair is not refused where nobody is");
	close(other);
	close(raw);
}

int main(void)
{
	return for_each_family(shown);
}
