// SPDX-License-Identifier: BSD-2-Clause
/*
 * The origin that an address was added with is read back with it (IFA_PROTO, since Linux 5.18).
 * Relied on: ctl/net/rtnl.c (rtnl_address: which addresses on lo are ours).
 * Kernel: net/ipv4/devinet.c, inet_fill_ifaddr; net/ipv6/addrconf.c, inet6_fill_ifaddr.
 */
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include "rule.h"

#define OURS 77

static int on_address(const struct nlmsghdr *h, void *count)
{
	const struct nlattr *a;

	mnl_attr_for_each(a, h, sizeof(struct ifaddrmsg))
		if (mnl_attr_get_type(a) == IFA_PROTO && mnl_attr_get_u8(a) == OURS)
			++*(int *)count;
	return MNL_CB_OK;
}

/* Adds the address, or reads those of the family: how many of them are ours. */
static int ask_kernel(int family, uint16_t type, uint16_t flags)
{
	char buf[8192] = {};
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(h, sizeof(*ifa));
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), ours = 0, r;
	static const char address[16] = "\x20\x01\x0d\xb8"; /* 32.1.13.184, 2001:db8:: */
	size_t size = family == AF_INET ? 4 : 16;

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	ifa->ifa_family = (uint8_t)family;
	ifa->ifa_prefixlen = (uint8_t)(8 * size);
	ifa->ifa_index = if_nametoindex("lo");
	mnl_attr_put(h, IFA_LOCAL, size, address);
	mnl_attr_put_u8(h, IFA_PROTO, OURS);
	need(send(fd, h, h->nlmsg_len, 0) > 0);
	do
		r = mnl_cb_run(buf, (size_t)recv(fd, buf, sizeof(buf), 0), 0, 0, on_address, &ours);
	while (r > 0);
	need(!r && !close(fd));
	return ours;
}

static void shown(int family)
{
	rule(!ask_kernel(family, RTM_GETADDR, NLM_F_DUMP), "another's address has our IFA_PROTO");
	ask_kernel(family, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
	rule(ask_kernel(family, RTM_GETADDR, NLM_F_DUMP) == 1, "IFA_PROTO is not read back");
}

int main(void)
{
	return for_each_family(shown);
}
