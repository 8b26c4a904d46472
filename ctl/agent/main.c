// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferryd: the agent of one node. Takes the node's lock, adopts or makes its maps, writes what the
 * configuration says, attaches, and then serves applications, commands and other agents in one
 * loop. When it ends, what is pinned goes on; --detach takes everything off instead.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "agent/agent.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

static const char usage[] =
	"Usage: ferryd --node NAME [--config FILE] [--socket PATH]\n"
	"       ferryd --node NAME --detach\n"
	"\n"
	"  -n, --node NAME    this node's name in the configuration; everything it keeps hangs off it\n"
	"  -c, --config FILE  default /etc/ferry/ferry.conf\n"
	"  -s, --socket PATH  for applications and commands; default /run/ferry/NAME.sock\n"
	"      --detach       take programs and pins off, in the node's network namespace, and end\n"
	"  -h, --help\n";

struct options {
	const char *node, *config, *socket;
	bool detach;
};

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "node", required_argument, NULL, 'n' },
		{ "config", required_argument, NULL, 'c' },
		{ "socket", required_argument, NULL, 's' },
		{ "detach", no_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	int c;

	*o = (struct options){ .config = "/etc/ferry/ferry.conf" };
	while ((c = getopt_long(argc, argv, "n:c:s:h", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o->node = optarg;
			break;
		case 'c':
			o->config = optarg;
			break;
		case 's':
			o->socket = optarg;
			break;
		case 'd':
			o->detach = true;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return -EINVAL;
		}
	}
	return optind == argc && o->node && name_valid(o->node) ? 0 : -EINVAL;
}

static void settings(const struct config *c, struct dataplane_settings *s)
{
	const struct config_node *self = c->self;

	*s = (struct dataplane_settings){
		.name = self->name,
		.node = self->number,
		.vni = c->vni,
		.buckets4 = self->buckets4,
		.buckets6 = self->buckets6,
		.stash = self->stash,
		.units = self->units,
		.no_fence_in = fault(FAULT_NO_INGRESS_FENCE),
		.no_fence_out = fault(FAULT_NO_EGRESS_FENCE),
	};
	memcpy(s->tag, c->tag, sizeof(s->tag));
	for (unsigned int i = 0; i < self->addresses; i++) {
		if (addr_is_v4(self->address[i]))
			memcpy(s->self4, self->address[i] + 12, 4);
		else
			memcpy(s->self6, self->address[i], 16);
	}
}

static int write_peer(struct agent *a, const struct config_node *n, const uint8_t addr[16],
		      const char *device)
{
	uint32_t ifindex = if_nametoindex(device);

	if (ifindex)
		return dataplane_peer(&a->dp, addr, ifindex, n->number);
	log_error("tunnel: no device %s in this network namespace", device);
	return -ENODEV;
}

static bool peer_configured(const void *key, void *arg)
{
	const struct ferry_peer_key *k = key;
	const struct agent *a = arg;
	const struct config_node *self = a->config.self;
	bool device = false;

	for (unsigned int t = 0; t < self->n_tunnel; t++)
		device |= if_nametoindex(self->tunnel[t]) == k->ifindex;
	for (unsigned int i = 0; device && i < a->config.n_nodes; i++)
		for (unsigned int n = 0; n < a->config.nodes[i].addresses; n++)
			if (&a->config.nodes[i] != self &&
			    !memcmp(a->config.nodes[i].address[n], k->addr, 16))
				return true;
	return false;
}

static bool service_configured(const void *key, void *arg)
{
	const struct agent *a = arg;

	for (unsigned int i = 0; i < a->config.n_services; i++)
		if (!memcmp(&a->config.services[i].key, key, sizeof(struct ferry_service_key)))
			return true;
	return false;
}

/* Every address of every other node, on every device that may bring its GENEVE. */
static int write_peers(struct agent *a)
{
	const struct config_node *self = a->config.self;
	int r = 0;

	for (unsigned int i = 0; i < a->config.n_nodes; i++) {
		const struct config_node *n = &a->config.nodes[i];

		for (unsigned int k = 0; n != self && k < n->addresses; k++)
			for (unsigned int t = 0; !r && t < self->n_tunnel; t++)
				r = write_peer(a, n, n->address[k], self->tunnel[t]);
	}
	return r ? r : dataplane_prune_peers(&a->dp, peer_configured, a);
}

static int write_services(struct agent *a)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < a->config.n_services; i++) {
		const struct config_service *s = &a->config.services[i];

		r = dataplane_service(&a->dp, &s->key, s->hop);
		if (!r && s->hop == a->config.self->number)
			r = vip_acquire(a, s->key.addr);
	}
	return r ? r : dataplane_prune_services(&a->dp, service_configured, a);
}

static int attach(struct agent *a)
{
	const struct config_node *self = a->config.self;
	int r = 0;

	for (unsigned int i = 0; !r && i < self->n_interfaces; i++)
		r = dataplane_attach(&a->dp, self->interfaces[i]);
	r = r ? r : dataplane_prune_links(&a->dp, self->interfaces, self->n_interfaces);
	if (r)
		log_error("%s", dataplane_error());
	return r;
}

static int start(struct agent *a, const char *socket_path)
{
	int r = write_peers(a);

	r = r ? r : write_services(a);
	r = r ? r : units_adopt(a);
	if (r) {
		log_error("cannot write peers and services, or read units: %s", strerror(-r));
		return r;
	}
	r = nodes_start(a);
	r = r ? r : nexthops_start(a);
	r = r ? r : ending_start(a);
	r = r ? r : attach(a);
	return r ? r : app_listen(a, socket_path);
}

static int run(struct agent *a, const char *socket_path)
{
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN); /* whoever read our log may be gone */
	r = sd_event_default(&a->event);
	r = r < 0 ? r : sd_event_add_signal(a->event, NULL, SIGTERM, NULL, NULL);
	r = r < 0 ? r : sd_event_add_signal(a->event, NULL, SIGINT, NULL, NULL);
	r = r < 0 ? r : sd_event_add_signal(a->event, NULL, SIGHUP, NULL, NULL);
	r = r < 0 ? r : start(a, socket_path);
	if (r < 0)
		return r;
	log_info("node %u is up, on %s", a->config.self->number, socket_path);
	r = sd_event_loop(a->event);
	moves_stop(a);
	return r;
}

/* A unit in a move is up to 253 descriptors here; no other process pays for a high limit. */
static void raise_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l))
		log_warning("cannot raise the number of descriptors: %s", strerror(errno));
}

static int detach(const struct options *o)
{
	struct dataplane d;
	int r = dataplane_lock_only(&d, o->node);

	r = r ? r : dataplane_detach(&d);
	if (r)
		log_error("%s", dataplane_error());
	dataplane_close(&d);
	return r;
}

int main(int argc, char **argv)
{
	struct dataplane_settings s;
	struct agent a = {};
	struct options o;
	char error[512], path[128];
	int r;

	if (parse(argc, argv, &o)) {
		fputs(usage, stderr);
		return 2;
	}
	snprintf(path, sizeof(path), "ferryd[%s]", o.node);
	log_open(path);
	prctl(PR_SET_DUMPABLE, 0); /* queues of strangers pass through here */
	if (fault_init())
		return 2;
	if (o.detach)
		return detach(&o) ? 1 : 0;
	if (config_load(&a.config, o.config, o.node, error, sizeof(error))) {
		log_error("%s", error);
		return 1;
	}
	snprintf(path, sizeof(path), "/run/ferry/%s.sock", o.node);
	if (!o.socket && mkdir("/run/ferry", 0755) && errno != EEXIST)
		log_warning("cannot make /run/ferry: %s", strerror(errno));
	if (peers_open(&a))
		return 1;
	settings(&a.config, &s);
	raise_limit();
	r = boot_id(a.boot);
	r = r ? r : rtnl_open(&a.rtnl);
	a.netns = r ? 0 : socket_netns(a.rtnl.fd);
	if (r) {
		log_error("cannot start: %s", strerror(-r));
		return 1;
	}
	if (dataplane_open(&a.dp, &s)) {
		log_error("%s", dataplane_error());
		return 1;
	}
	r = run(&a, o.socket ? o.socket : path);
	dataplane_close(&a.dp);
	return r ? 1 : 0;
}
