// SPDX-License-Identifier: BSD-2-Clause
/*
 * Next hops follow the kernel's routes, links and neighbours: looked up at the start, soon after
 * netlink says that something changed, and every second, which also keeps neighbours in use from
 * going stale. A template changes only where what it is made of did.
 */
#include <errno.h>
#include <string.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

#define REFRESH_US 1000000
#define SETTLE_US 20000

static const uint8_t *own_address(const struct config_node *self, bool v4)
{
	for (unsigned int i = 0; i < self->addresses; i++)
		if (addr_is_v4(self->address[i]) == v4)
			return self->address[i];
	return NULL;
}

/* Everything an outer header to the node needs, or -errno. */
static int look_up(struct agent *a, const struct config_node *n, struct nexthop_route *out)
{
	const uint8_t *self = own_address(a->config.self, addr_is_v4(n->address[0]));
	struct rtnl_route route;
	struct rtnl_link link;
	int r;

	if (!self)
		return -EAFNOSUPPORT;
	r = rtnl_route(&a->rtnl, n->address[0], &route);
	r = r ? r : rtnl_link(&a->rtnl, route.ifindex, &link);
	r = r ? r : rtnl_neighbour(&a->rtnl, route.ifindex, route.next, out->dmac);
	if (r)
		return r;
	memcpy(out->from, self, 16);
	memcpy(out->to, n->address[0], 16);
	memcpy(out->smac, link.mac, 6);
	out->ifindex = route.ifindex;
	out->veth = link.veth;
	out->mtu = (uint16_t)(route.mtu && route.mtu < link.mtu ? route.mtu : link.mtu);
	return 0;
}

static void refresh(struct agent *a)
{
	for (unsigned int i = 0; i < a->config.n_nodes; i++) {
		const struct config_node *n = &a->config.nodes[i];
		struct nexthop_route route = {};
		int r;

		if (n == a->config.self)
			continue;
		r = look_up(a, n, &route);
		if (r == -ETIMEDOUT || r == -EPROTO || r == -EINTR) /* netlink's, not the route's */
			log_warning("cannot look up the way to %s: %s", n->name, strerror(-r));
		else if (r)
			nexthop_clear(&a->dp, n->number);
		else if ((r = nexthop_set(&a->dp, n->number, &route, a->config.vni, a->config.tag)))
			log_warning("cannot set the next hop to %s: %s", n->name, strerror(-r));
	}
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
	bool frozen = moves_frozen(arg); /* netlink may let us wait */

	(void)usec;
	if (!frozen)
		refresh(arg);
	sd_event_source_set_time_relative(s, frozen ? SETTLE_US : REFRESH_US);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int on_change(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	char buf[16384];

	(void)s, (void)events;
	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	sd_event_source_set_time_relative(arg, SETTLE_US);
	return sd_event_source_set_enabled(arg, SD_EVENT_ONESHOT);
}

int nexthops_start(struct agent *a)
{
	sd_event_source *timer;
	int fd = rtnl_monitor(), r;

	if (fd < 0)
		return fd;
	refresh(a);
	r = sd_event_add_time_relative(a->event, &timer, CLOCK_MONOTONIC, SETTLE_US, 0, on_timer,
				       a);
	if (r >= 0)
		r = sd_event_add_io(a->event, NULL, fd, EPOLLIN, on_change, timer);
	return r < 0 ? r : 0;
}
