// SPDX-License-Identifier: BSD-2-Clause
/*
 * See space.h. The agent enters no other namespace, and could not: what it needs to know there it
 * asks by a socket that an application made there; what has to be set up there is the host's.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "net/diag.h"

struct space *space_hold(struct agent *a, uint64_t cookie)
{
	struct space *s = a->spaces;

	while (s && s->cookie != cookie)
		s = s->next;
	if (s)
		return space_again(s);
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->cookie = cookie;
	s->own = cookie == a->netns;
	s->diag = -1;
	s->users = 1;
	s->next = a->spaces;
	a->spaces = s;
	return s;
}

struct space *space_again(struct space *s)
{
	s->users++;
	return s;
}

void space_release(struct agent *a, struct space *s)
{
	struct space **at = &a->spaces;

	if (!s || --s->users)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	close_fd(&s->diag);
	free(s);
}

void space_lend_diag(struct space *s, int diag)
{
	if (!s->own && s->diag < 0)
		s->diag = fcntl(diag, F_DUPFD_CLOEXEC, 0);
}

int space_has_socket(const struct space *s, const struct ferry_flow *flow)
{
	return s->own || s->diag >= 0 ? diag_has_socket(s->diag, flow) : -ENOTCONN;
}

static bool is_ours(const struct config_node *self, uint32_t ifindex)
{
	for (unsigned int i = 0; i < self->n_interfaces; i++)
		if (if_nametoindex(self->interfaces[i]) == ifindex)
			return true;
	return false;
}

int space_deliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	struct rtnl_route route;
	int r;

	if (s->own)
		return vip_allowed(a, addr) ? vip_acquire(a, addr) : -EACCES;
	r = rtnl_route(&a->rtnl, addr, &route);
	if (r)
		return r;
	return route.local || is_ours(a->config.self, route.ifindex) ? -EADDRNOTAVAIL : 0;
}

void space_undeliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	if (s->own)
		vip_release(a, addr);
}
