/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rtnetlink, the one module that speaks it: routes, neighbours, links, and addresses made
 * deliverable on lo. Works in the network namespace it was opened in. Addresses are 16 octets,
 * IPv4 v4-mapped. All calls answer within 5 seconds or fail with -ETIMEDOUT.
 */
#ifndef RTNL_H
#define RTNL_H

#include <stdbool.h>
#include <stdint.h>

struct rtnl {
	int fd;
	uint32_t seq;
};

int rtnl_open(struct rtnl *n);
/* A socket that becomes readable when a link, neighbour or route changes. -errno on failure. */
int rtnl_monitor(void);

struct rtnl_route {
	uint32_t ifindex;
	uint8_t next[16]; /* gateway, or the address itself on its link */
	uint8_t source[16];
	uint32_t mtu; /* of the route, 0: the link's */
	bool local;
};
/* 0, or -errno as the kernel says it (-ENETUNREACH, -EHOSTUNREACH ...). */
int rtnl_route(struct rtnl *n, const uint8_t to[16], struct rtnl_route *route);

struct rtnl_link {
	uint8_t mac[6];
	uint32_t mtu;
	bool veth;
};
int rtnl_link(struct rtnl *n, uint32_t ifindex, struct rtnl_link *link);

/* The neighbour's MAC, or -ENOENT where it is not resolved; then, or where it is stale, the kernel
 * is asked to resolve it. */
int rtnl_neighbour(struct rtnl *n, uint32_t ifindex, const uint8_t addr[16], uint8_t mac[6]);

/* Adds the address to lo, marked as ours. 0; -EEXIST where some device has it, not by us. */
int rtnl_deliver(struct rtnl *n, const uint8_t addr[16]);
/* Removes it, where it is ours. 0 or -errno. */
int rtnl_withdraw(struct rtnl *n, const uint8_t addr[16]);
/* Whether this address is on lo by us, and whether a device has it, not by us. 0 or -errno. */
int rtnl_address(struct rtnl *n, const uint8_t addr[16], bool *ours, bool *others);

/* sweep.c: takes every address and local route of our mark away, but for those wanted (NULL: none
 * is). How many addresses, or -errno. */
typedef bool (*address_wanted)(const uint8_t addr[16], void *arg);
int rtnl_sweep(struct rtnl *n, address_wanted wanted, void *arg);
/* TC filters on a device, ingress and egress. How many, or -errno. */
int rtnl_filters(struct rtnl *n, uint32_t ifindex);

#endif
