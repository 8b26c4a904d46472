// SPDX-License-Identifier: BSD-2-Clause
/*
 * A local route on lo makes an IPv6 address deliverable when it is answered, not later.
 * Relied on: ctl/net/rtnl.c (change_route: the address's own route comes from a work queue).
 * Kernel: net/ipv6/route.c, ip6_route_add; net/ipv6/addrconf.c, addrconf_dad_start.
 */
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include "rule.h"

/* RTN_LOCAL to the address, on lo; 0 or -errno as the kernel says it. */
static int route(const struct in6_addr *to)
{
	char buf[256] = {};
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtmsg *rt = mnl_nlmsg_put_extra_header(h, sizeof(*rt));
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	struct nlmsgerr *answer = mnl_nlmsg_get_payload(h);

	h->nlmsg_type = RTM_NEWROUTE;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
	rt->rtm_family = AF_INET6;
	rt->rtm_dst_len = 128;
	rt->rtm_table = RT_TABLE_LOCAL;
	rt->rtm_type = RTN_LOCAL;
	mnl_attr_put(h, RTA_DST, sizeof(*to), to);
	mnl_attr_put_u32(h, RTA_OIF, if_nametoindex("lo"));
	need(send(fd, h, h->nlmsg_len, 0) > 0 && recv(fd, buf, sizeof(buf), 0) > 0);
	close(fd);
	return answer->error;
}

int main(void)
{
	struct name to = loopback(AF_INET6, 7001);
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(7001) };
	struct in6_addr *address = &to.v6.sin6_addr;
	int in, out;

	begin();
	in = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	out = socket(AF_INET6, SOCK_DGRAM, 0);
	need(inet_pton(AF_INET6, "2001:db8::1", address) == 1);
	need(!bind(in, (struct sockaddr *)&any, sizeof(any)));
	rule(sendto(out, "x", 1, 0, &to.sa, to.size) == -1 &&
		     errno == ENETUNREACH,
	     "an address of nobody has a route");
	need(!route(address));
	rule(sendto(out, "x", 1, 0, &to.sa, to.size) == 1,
	     "a local route is no way to its address at once");
	settle();
	rule(recv(in, &any, 1, 0) == 1, "what is sent to a local route's address does not come");
	return 0;
}
