/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One exact sock_diag question, for the rules about it: is there a socket with this tuple in the
 * namespace of the netlink socket? What asks for it is written by hand, apart from ctl/net/diag.c,
 * so that the rule is the kernel's and not that code's.
 */
#ifndef DIAG_H
#define DIAG_H

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include "rule.h"

static inline int diag_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);

	need(fd >= 0);
	return fd;
}

/* The state of the socket at the loopback address with these ports in host order; -ENOENT. The
 * address is the same on both sides, so that only ports can be swapped. */
static inline int diag(int fd, int family, int protocol, int source, int destination)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = { { sizeof(q), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0 },
		{ .sdiag_family = (uint8_t)family,
		  .sdiag_protocol = (uint8_t)protocol,
		  .idiag_states = ~0U,
		  .id = { .idiag_sport = htons((uint16_t)source),
			  .idiag_dport = htons((uint16_t)destination),
			  .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } } };
	union {
		struct nlmsghdr h;
		char room[8192];
	} a;
	__be32 *last = family == AF_INET ? &q.r.id.idiag_src[0] : &q.r.id.idiag_src[3];

	*last = family == AF_INET ? htonl(INADDR_LOOPBACK) : htonl(1);
	memcpy(q.r.id.idiag_dst, q.r.id.idiag_src, sizeof(q.r.id.idiag_dst));
	need(send(fd, &q, sizeof(q), 0) == sizeof(q) && recv(fd, &a, sizeof(a), 0) > 0);
	if (a.h.nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(&a.h))->error;
	return ((struct inet_diag_msg *)NLMSG_DATA(&a.h))->idiag_state;
}

#endif
