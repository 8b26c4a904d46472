/* SPDX-License-Identifier: BSD-2-Clause */
/* One exchange with rtnetlink, for the files of this folder: rtnl.c has it, and what it means. */
#ifndef NET_TALK_H
#define NET_TALK_H

#include <libmnl/libmnl.h>
#include "net/rtnl.h"

#define OUR_PROTO 0x46 /* of our addresses (IFA_PROTO) and routes */
#ifndef IFA_PROTO
#define IFA_PROTO 11 /* linux/if_addr.h since 5.18 */
#endif

/* buf is zeroed. */
struct nlmsghdr *rtnl_begin(char *buf, uint16_t type, uint16_t flags);
int rtnl_talk(struct rtnl *n, struct nlmsghdr *h, mnl_cb_t cb, void *arg);
void rtnl_get_addr(const struct nlattr *a, uint8_t addr[16]);
/* The local route of an IPv6 address, of our making. 0 where there is nothing to do. */
int rtnl_change_route(struct rtnl *n, uint16_t type, uint16_t flags, const uint8_t addr[16]);

#endif
