// SPDX-License-Identifier: BSD-2-Clause
/*
 * A window scale of 14 can be restored, one of 15 cannot (EFBIG).
 * Relied on: ctl/move/image.c (an image that says more is refused before a socket is touched).
 * Kernel: net/ipv4/tcp.c, tcp_repair_options_est; RFC 7323 section 2.3.
 */
#include "rule.h"

static int set_scales(int fd, uint32_t send, uint32_t receive)
{
	const struct tcp_repair_opt o = { OPT_WINDOW, send | receive << 16 };

	return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, &o, sizeof(o)) ? -errno : 0;
}

static void shown(int family)
{
	int fd = restored(family);

	rule(set_scales(fd, 15, 0) == -EFBIG, "a send window scale of 15 is not EFBIG");
	rule(set_scales(fd, 0, 15) == -EFBIG, "a receive window scale of 15 is not EFBIG");
	for (uint32_t i = 0; i <= 14; i++) {
		rule(!set_scales(fd, i, 14 - i), "a window scale of %u fails", i);
		rule(info(fd).tcpi_snd_wscale == i && info(fd).tcpi_rcv_wscale == 14 - i,
		     "a window scale of %u is not taken over", i);
	}
	close(fd);
}

int main(void)
{
	return for_each_family(shown);
}
