// SPDX-License-Identifier: BSD-2-Clause
/*
 * Service addresses on lo, counted: the service's home node holds one reference for life, each
 * unit that lives here or is coming holds one a flow. An address that was there before, not by us,
 * is used and left alone.
 */
#include <errno.h>
#include <string.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"

struct vip {
	struct vip *next;
	uint8_t addr[16];
	unsigned int users;
};

static struct vip **find(struct agent *a, const uint8_t addr[16])
{
	struct vip **at = &a->vips;

	while (*at && memcmp((*at)->addr, addr, 16))
		at = &(*at)->next;
	return at;
}

/* Anybody may bind a socket to any address (IP_FREEBIND): what it is bound to is no reason to take
 * that address. */
bool vip_allowed(struct agent *a, const uint8_t addr[16])
{
	bool ours = false, others = false;

	for (unsigned int i = 0; i < a->config.n_services; i++)
		if (!memcmp(a->config.services[i].key.addr, addr, 16))
			return true;
	return *find(a, addr) ||
	       (!rtnl_address(&a->rtnl, addr, &ours, &others) && (ours || others));
}

int vip_acquire(struct agent *a, const uint8_t addr[16])
{
	struct vip **at = find(a, addr), *v = *at;
	char text[ADDR_TEXT];
	int r;

	if (v) {
		v->users++;
		return 0;
	}
	r = rtnl_deliver(&a->rtnl, addr);
	if (r && r != -EEXIST) {
		log_error("cannot make %s deliverable on lo: %s", addr_text(addr, text),
			  strerror(-r));
		return r;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	memcpy(v->addr, addr, 16);
	v->users = 1;
	*at = v;
	return 0;
}

static bool wanted(const uint8_t addr[16], void *arg)
{
	return *find(arg, addr);
}

void vips_sweep(struct agent *a)
{
	int n = rtnl_sweep(&a->rtnl, wanted, a);

	if (n)
		log_info("%d addresses on lo were left by an earlier agent%s%s", n < 0 ? 0 : n,
			 n < 0 ? ": " : "", n < 0 ? strerror(-n) : "");
}

void vip_release(struct agent *a, const uint8_t addr[16])
{
	struct vip **at = find(a, addr), *v = *at;
	char text[ADDR_TEXT];
	int r;

	if (!v || --v->users)
		return;
	*at = v->next;
	free(v);
	r = rtnl_withdraw(&a->rtnl, addr);
	if (r)
		log_warning("cannot withdraw %s from lo: %s", addr_text(addr, text), strerror(-r));
}
