// SPDX-License-Identifier: BSD-2-Clause
/*
 * sock_diag takes the tuple of a UDP socket with source and destination swapped.
 * Relied on: ctl/net/diag.c (put_request).
 * Kernel: net/ipv4/udp_diag.c, udp_dump_one: "src and dst are swapped for historical reasons".
 */
#include "diag.h"

static void shown(int family)
{
	int fd = socket(family, SOCK_DGRAM, 0), netlink = diag_open();

	need(!bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	rule(diag(netlink, family, IPPROTO_UDP, 7002, 7001) > 0,
	     "a UDP socket is not found with its tuple swapped");
	rule(diag(netlink, family, IPPROTO_UDP, 7001, 7002) == -ENOENT,
	     "a UDP socket is found with its tuple as it is");
	close(fd);
	rule(diag(netlink, family, IPPROTO_UDP, 7002, 7001) == -ENOENT,
	     "a closed UDP socket is found");
	close(netlink);
}

int main(void)
{
	return for_each_family(shown);
}
