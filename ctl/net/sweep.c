// SPDX-License-Identifier: BSD-2-Clause
/*
 * What is on a namespace or a device by our mark, whoever of us put it there: addresses and local
 * routes to withdraw when the node is taken off, and TC filters to be counted. Marks are those of
 * rtnl.c; what has none is not touched.
 */
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "net/talk.h"

struct found {
	uint8_t (*addr)[16];
	unsigned int n;
	uint32_t lo;
};

static int keep(struct found *f, const struct nlattr *a)
{
	void *grown = realloc(f->addr, (f->n + 1) * sizeof(*f->addr));

	if (!grown)
		return MNL_CB_ERROR;
	f->addr = grown;
	memset(f->addr[f->n], 0, sizeof(*f->addr));
	rtnl_get_addr(a, f->addr[f->n++]);
	return MNL_CB_OK;
}

static int on_address(const struct nlmsghdr *h, void *arg)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(h);
	const struct nlattr *a, *addr = NULL;
	struct found *f = arg;
	bool ours = false;

	mnl_attr_for_each(a, h, sizeof(*ifa)) {
		if (mnl_attr_get_type(a) == IFA_ADDRESS)
			addr = a;
		else if (mnl_attr_get_type(a) == IFA_PROTO)
			ours = mnl_attr_get_u8(a) == OUR_PROTO;
	}
	return ours && addr && ifa->ifa_index == f->lo ? keep(f, addr) : MNL_CB_OK;
}

static int on_route(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	const struct nlattr *a;

	if (rt->rtm_protocol != OUR_PROTO || rt->rtm_type != RTN_LOCAL ||
	    rt->rtm_table != RT_TABLE_LOCAL)
		return MNL_CB_OK;
	mnl_attr_for_each(a, h, sizeof(*rt))
		if (mnl_attr_get_type(a) == RTA_DST)
			return keep(arg, a);
	return MNL_CB_OK;
}

static int dump(struct rtnl *n, uint16_t type, uint8_t family, mnl_cb_t cb, struct found *f)
{
	char buf[MNL_NLMSG_HDRLEN + 64] = {};
	struct nlmsghdr *h = rtnl_begin(buf, type, NLM_F_DUMP);

	/* the family is the first octet of either */
	((struct rtmsg *)mnl_nlmsg_put_extra_header(h, sizeof(struct rtmsg)))->rtm_family = family;
	return rtnl_talk(n, h, cb, f);
}

int rtnl_sweep(struct rtnl *n, address_wanted wanted, void *arg)
{
	struct found f = { .lo = if_nametoindex("lo") };
	int r = dump(n, RTM_GETADDR, AF_INET, on_address, &f), addresses = 0;

	r = r ? r : dump(n, RTM_GETADDR, AF_INET6, on_address, &f);
	for (unsigned int i = 0; !r && i < f.n; i++) {
		if (wanted && wanted(f.addr[i], arg))
			continue;
		r = rtnl_withdraw(n, f.addr[i]);
		addresses++;
	}
	f.n = 0;
	/* one whose address somebody else has removed */
	r = r ? r : dump(n, RTM_GETROUTE, AF_INET6, on_route, &f);
	for (unsigned int i = 0; !r && i < f.n; i++)
		if (!wanted || !wanted(f.addr[i], arg))
			r = rtnl_change_route(n, RTM_DELROUTE, 0, f.addr[i]);
	free(f.addr);
	return r ? r : addresses;
}

static int on_filter(const struct nlmsghdr *h, void *arg)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(h);

	*(int *)arg += tc->tcm_handle != 0; /* not the line that stands for all of a priority */
	return MNL_CB_OK;
}

int rtnl_filters(struct rtnl *n, uint32_t ifindex)
{
	const uint32_t sides[] = { TC_H_MIN_INGRESS, TC_H_MIN_EGRESS };
	int filters = 0, r = 0;

	for (unsigned int i = 0; !r && i < ARRAY_SIZE(sides); i++) {
		char buf[MNL_NLMSG_HDRLEN + 64] = {};
		struct nlmsghdr *h = rtnl_begin(buf, RTM_GETTFILTER, NLM_F_DUMP);
		struct tcmsg *tc = mnl_nlmsg_put_extra_header(h, sizeof(*tc));

		tc->tcm_ifindex = (int)ifindex;
		tc->tcm_parent = TC_H_MAKE(TC_H_CLSACT, sides[i]);
		r = rtnl_talk(n, h, on_filter, &filters);
	}
	return r ? r : filters;
}
