// SPDX-License-Identifier: BSD-2-Clause
/*
 * See space.h. The agent enters no other namespace, and could not: what it needs to know there it
 * asks by a socket that an application made there; what has to be set up there is the host's.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
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

static bool is_routed(const struct agent *a, const uint8_t addr[16])
{
	for (unsigned int i = 0; i < a->config.n_services; i++)
		if (a->config.services[i].route && !memcmp(a->config.services[i].key.addr, addr, 16))
			return true;
	return false;
}

/* Whether the host's route to the address leads to a namespace: not here, and by no device that
 * other nodes or clients are behind. */
static int look_at_route(struct agent *a, const uint8_t addr[16], uint32_t *device)
{
	struct rtnl_route route;
	int r;

	if (!is_routed(a, addr))
		return -EACCES;
	r = rtnl_route(&a->rtnl, addr, &route);
	if (r)
		return r;
	*device = route.ifindex;
	return route.local || is_ours(a->config.self, route.ifindex) ? -EADDRNOTAVAIL : 0;
}

int space_deliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	char text[ADDR_TEXT];
	uint32_t device;
	int r;

	if (s->own)
		return vip_allowed(a, addr) ? vip_acquire(a, addr) : -EACCES;
	r = look_at_route(a, addr, &device);
	if (r == -EACCES)
		log_warning("%s is no address of a service with 'deliver = route', and its socket "
			    "is in a network namespace of its own",
			    addr_text(addr, text));
	else if (r)
		log_warning("%s does not lead to a network namespace of this host (ip route get): "
			    "%s",
			    addr_text(addr, text), strerror(-r));
	return r;
}

uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	uint32_t device = 0;

	return s->own || look_at_route(a, addr, &device) ? 0 : device;
}

void space_undeliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	if (s->own)
		vip_release(a, addr);
}
