// SPDX-License-Identifier: BSD-2-Clause
/*
 * rtnetlink by libmnl: one request at a time, answered synchronously on a socket of its own.
 * Our addresses carry IFA_PROTO 0x46, so that a later agent knows which ones to withdraw.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/time.h>
#include "base/util.h"
#include "net/rtnl.h"
#include "net/talk.h"

#define TRIES 20
#define WAIT_S 5 /* others may hold the lock of all of rtnetlink */

int rtnl_open(struct rtnl *n)
{
	struct timeval wait = { .tv_sec = WAIT_S };
	struct sockaddr_nl local = { .nl_family = AF_NETLINK };

	n->seq = 0;
	n->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (n->fd < 0 || bind(n->fd, (struct sockaddr *)&local, sizeof(local)) ||
	    setsockopt(n->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)))
		return -errno;
	return 0;
}

int rtnl_monitor(void)
{
	struct sockaddr_nl local = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE,
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0 || bind(fd, (struct sockaddr *)&local, sizeof(local))) {
		int r = -errno;

		close_fd(&fd);
		return r;
	}
	return fd;
}

/* Feeds the answers to cb until the end of the dump, the ack or an error. What an earlier, broken
 * exchange has left in the socket is not ours to read as an answer. */
static int answers(struct rtnl *n, mnl_cb_t cb, void *arg)
{
	char buf[32768];
	int r = MNL_CB_OK;

	while (r > MNL_CB_STOP) {
		ssize_t size = recv(n->fd, buf, sizeof(buf), 0);

		if (size < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (((struct nlmsghdr *)buf)->nlmsg_seq == n->seq)
			r = mnl_cb_run(buf, (size_t)size, n->seq, 0, cb, arg);
	}
	return r < 0 ? -errno : 0;
}

/* A dump that a change has interrupted (NLM_F_DUMP_INTR) is asked for again. */
int rtnl_talk(struct rtnl *n, struct nlmsghdr *h, mnl_cb_t cb, void *arg)
{
	int r = -EINTR;

	h->nlmsg_flags |= NLM_F_REQUEST;
	for (int i = 0; r == -EINTR && i < TRIES; i++) {
		h->nlmsg_seq = ++n->seq;
		if (send(n->fd, h, h->nlmsg_len, 0) < 0)
			return -errno;
		r = answers(n, cb, arg);
	}
	return r;
}

struct nlmsghdr *rtnl_begin(char *buf, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = type;
	h->nlmsg_flags = flags;
	return h;
}

static uint8_t family(const uint8_t addr[16])
{
	return addr_is_v4(addr) ? AF_INET : AF_INET6;
}

static void put_addr(struct nlmsghdr *h, uint16_t type, const uint8_t addr[16])
{
	bool v4 = addr_is_v4(addr);

	mnl_attr_put(h, type, v4 ? 4 : 16, v4 ? addr + 12 : addr);
}

void rtnl_get_addr(const struct nlattr *a, uint8_t addr[16])
{
	if (mnl_attr_get_payload_len(a) == 4) {
		memset(addr, 0, 10);
		memset(addr + 10, 0xff, 2);
		memcpy(addr + 12, mnl_attr_get_payload(a), 4);
	} else if (mnl_attr_get_payload_len(a) == 16) {
		memcpy(addr, mnl_attr_get_payload(a), 16);
	}
}

static int on_route(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	struct rtnl_route *r = arg;
	const struct nlattr *a, *m;

	r->local = rt->rtm_type == RTN_LOCAL;
	mnl_attr_for_each(a, h, sizeof(*rt)) {
		switch (mnl_attr_get_type(a)) {
		case RTA_OIF:
			r->ifindex = mnl_attr_get_u32(a);
			break;
		case RTA_GATEWAY:
			rtnl_get_addr(a, r->next);
			break;
		case RTA_PREFSRC:
			rtnl_get_addr(a, r->source);
			break;
		case RTA_METRICS:
			mnl_attr_for_each_nested(m, a)
				if (mnl_attr_get_type(m) == RTAX_MTU)
					r->mtu = mnl_attr_get_u32(m);
			break;
		}
	}
	return MNL_CB_STOP;
}

int rtnl_route(struct rtnl *n, const uint8_t to[16], struct rtnl_route *route)
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct nlmsghdr *h = rtnl_begin(buf, RTM_GETROUTE, 0);
	struct rtmsg *rt = mnl_nlmsg_put_extra_header(h, sizeof(*rt));

	rt->rtm_family = family(to);
	rt->rtm_dst_len = addr_is_v4(to) ? 32 : 128;
	put_addr(h, RTA_DST, to);
	memset(route, 0, sizeof(*route));
	memcpy(route->next, to, 16);
	return rtnl_talk(n, h, on_route, route);
}

static int on_link(const struct nlmsghdr *h, void *arg)
{
	const struct ifinfomsg *info = mnl_nlmsg_get_payload(h);
	struct rtnl_link *l = arg;
	const struct nlattr *a, *k;

	mnl_attr_for_each(a, h, sizeof(*info)) {
		if (mnl_attr_get_type(a) == IFLA_ADDRESS && mnl_attr_get_payload_len(a) == 6)
			memcpy(l->mac, mnl_attr_get_payload(a), 6);
		else if (mnl_attr_get_type(a) == IFLA_MTU)
			l->mtu = mnl_attr_get_u32(a);
		else if (mnl_attr_get_type(a) == IFLA_LINKINFO)
			mnl_attr_for_each_nested(k, a)
				if (mnl_attr_get_type(k) == IFLA_INFO_KIND)
					l->veth = !strcmp(mnl_attr_get_str(k), "veth");
	}
	return MNL_CB_STOP;
}

int rtnl_link(struct rtnl *n, uint32_t ifindex, struct rtnl_link *link)
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct nlmsghdr *h = rtnl_begin(buf, RTM_GETLINK, 0);
	struct ifinfomsg *info = mnl_nlmsg_put_extra_header(h, sizeof(*info));

	info->ifi_index = (int)ifindex;
	memset(link, 0, sizeof(*link));
	return rtnl_talk(n, h, on_link, link);
}

struct neighbour {
	uint16_t state;
	uint8_t mac[6];
};

static int on_neighbour(const struct nlmsghdr *h, void *arg)
{
	const struct ndmsg *nd = mnl_nlmsg_get_payload(h);
	struct neighbour *nb = arg;
	const struct nlattr *a;

	nb->state = nd->ndm_state;
	mnl_attr_for_each(a, h, sizeof(*nd))
		if (mnl_attr_get_type(a) == NDA_LLADDR && mnl_attr_get_payload_len(a) == 6)
			memcpy(nb->mac, mnl_attr_get_payload(a), 6);
	return MNL_CB_STOP;
}

static struct nlmsghdr *begin_neighbour(char *buf, uint16_t type, uint16_t flags, uint32_t ifindex,
					const uint8_t addr[16], struct ndmsg **nd)
{
	struct nlmsghdr *h = rtnl_begin(buf, type, flags);

	*nd = mnl_nlmsg_put_extra_header(h, sizeof(**nd));
	(*nd)->ndm_family = family(addr);
	(*nd)->ndm_ifindex = (int)ifindex;
	put_addr(h, NDA_DST, addr);
	return h;
}

int rtnl_neighbour(struct rtnl *n, uint32_t ifindex, const uint8_t addr[16], uint8_t mac[6])
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct neighbour nb = {};
	struct ndmsg *nd;
	struct nlmsghdr *h = begin_neighbour(buf, RTM_GETNEIGH, 0, ifindex, addr, &nd);
	int r = rtnl_talk(n, h, on_neighbour, &nb);
	bool valid = !r && nb.state & (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE |
				       NUD_STALE | NUD_DELAY);

	if (!valid || nb.state & NUD_STALE) {
		memset(buf, 0, sizeof(buf));
		h = begin_neighbour(buf, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, ifindex, addr,
				    &nd);
		nd->ndm_flags = NTF_USE;
		nd->ndm_state = NUD_NONE;
		rtnl_talk(n, h, NULL, NULL); /* where it fails, the next look tells */
	}
	if (!valid)
		return -ENOENT;
	memcpy(mac, nb.mac, 6);
	return 0;
}

struct address {
	const uint8_t *addr;
	bool ours, others; /* both, where another device has it too */
};

static int on_address(const struct nlmsghdr *h, void *arg)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(h);
	struct address *want = arg;
	const struct nlattr *a;
	uint8_t addr[16] = {}, local[16] = {};
	bool ours = false, has_local = false;

	mnl_attr_for_each(a, h, sizeof(*ifa)) {
		switch (mnl_attr_get_type(a)) {
		case IFA_ADDRESS:
			rtnl_get_addr(a, addr);
			break;
		case IFA_LOCAL:
			rtnl_get_addr(a, local);
			has_local = true;
			break;
		case IFA_PROTO:
			ours = mnl_attr_get_u8(a) == OUR_PROTO;
			break;
		}
	}
	if (!memcmp(has_local ? local : addr, want->addr, 16)) {
		want->ours |= ours;
		want->others |= !ours;
	}
	return MNL_CB_OK;
}

int rtnl_address(struct rtnl *n, const uint8_t addr[16], bool *ours, bool *others)
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct nlmsghdr *h = rtnl_begin(buf, RTM_GETADDR, NLM_F_DUMP);
	struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(h, sizeof(*ifa));
	struct address want = { .addr = addr };
	int r;

	ifa->ifa_family = family(addr);
	r = rtnl_talk(n, h, on_address, &want);
	*ours = want.ours;
	*others = want.others;
	return r;
}

static int change_address(struct rtnl *n, uint16_t type, uint16_t flags, const uint8_t addr[16])
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct nlmsghdr *h = rtnl_begin(buf, type, NLM_F_ACK | flags);
	struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(h, sizeof(*ifa));

	ifa->ifa_family = family(addr);
	ifa->ifa_prefixlen = addr_is_v4(addr) ? 32 : 128;
	ifa->ifa_flags = IFA_F_NODAD;
	ifa->ifa_scope = RT_SCOPE_UNIVERSE;
	ifa->ifa_index = if_nametoindex("lo");
	put_addr(h, IFA_LOCAL, addr);
	put_addr(h, IFA_ADDRESS, addr);
	if (type == RTM_NEWADDR)
		mnl_attr_put_u8(h, IFA_PROTO, OUR_PROTO);
	return rtnl_talk(n, h, NULL, NULL);
}

/* The local route of an IPv6 address comes from a work queue (net/ipv6/addrconf.c,
 * addrconf_dad_start), under load seconds after the address: until then its packets have no route.
 * This one is there when the answer is. 0 where there is nothing to do. */
int rtnl_change_route(struct rtnl *n, uint16_t type, uint16_t flags, const uint8_t addr[16])
{
	char buf[MNL_NLMSG_HDRLEN + 256] = {};
	struct nlmsghdr *h = rtnl_begin(buf, type, NLM_F_ACK | flags);
	struct rtmsg *rt = mnl_nlmsg_put_extra_header(h, sizeof(*rt));
	int r;

	if (addr_is_v4(addr))
		return 0;
	rt->rtm_family = AF_INET6;
	rt->rtm_dst_len = 128;
	rt->rtm_table = RT_TABLE_LOCAL;
	rt->rtm_type = RTN_LOCAL;
	rt->rtm_scope = RT_SCOPE_UNIVERSE;
	rt->rtm_protocol = OUR_PROTO;
	put_addr(h, RTA_DST, addr);
	mnl_attr_put_u32(h, RTA_OIF, if_nametoindex("lo"));
	r = rtnl_talk(n, h, NULL, NULL);
	return r == -EEXIST || r == -ESRCH ? 0 : r;
}

int rtnl_deliver(struct rtnl *n, const uint8_t addr[16])
{
	bool ours, others;
	int r = rtnl_address(n, addr, &ours, &others);

	if (r || ours)
		return r;
	if (others)
		return -EEXIST;
	r = change_address(n, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, addr);
	return r ? r : rtnl_change_route(n, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, addr);
}

int rtnl_withdraw(struct rtnl *n, const uint8_t addr[16])
{
	bool ours, others;
	int r = rtnl_address(n, addr, &ours, &others);

	if (r || !ours)
		return r;
	r = change_address(n, RTM_DELADDR, 0, addr);
	return r ? r : rtnl_change_route(n, RTM_DELROUTE, 0, addr);
}
