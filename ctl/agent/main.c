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
#include <systemd/sd-daemon.h>
#include "agent/access.h"
#include "agent/agent.h"
#include "agent/detach.h"
#include "agent/upgrade.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

static const char usage[] =
	"Usage: ferryd --node NAME [--config FILE] [--socket PATH] [--user USER[:GROUP]]\n"
	"       ferryd --node NAME --detach [--force] [--socket PATH]\n"
	"       ferryd [--node NAME] [--config FILE] --check\n"
	"\n"
	"  -n, --node NAME    this node's name in the configuration; everything it keeps hangs off it\n"
	"  -c, --config FILE  default /etc/ferry/ferry.conf\n"
	"  -s, --socket PATH  for applications and commands; default /run/ferry/NAME.sock\n"
	"  -u, --user USER[:GROUP]  that it becomes once it has started; default ferry\n"
	"      --detach       take the node off, in its network namespace: nothing is left of it\n"
	"      --force        so even where connections break by it\n"
	"      --check        say whether the configuration is right, for NAME or all, and end\n"
	"      --log-level LEVEL  error, warning or info: that and worse is logged; default info\n"
	"  -h, --help\n";

struct options {
	const char *node, *config, *socket, *user;
	bool detach, force, check;
};

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "node", required_argument, NULL, 'n' },
		{ "config", required_argument, NULL, 'c' },
		{ "socket", required_argument, NULL, 's' },
		{ "user", required_argument, NULL, 'u' },
		{ "detach", no_argument, NULL, 'd' },
		{ "force", no_argument, NULL, 'f' },
		{ "check", no_argument, NULL, 'k' },
		{ "log-level", required_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	int c;

	*o = (struct options){ .config = "/etc/ferry/ferry.conf" };
	while ((c = getopt_long(argc, argv, "n:c:s:u:h", longs, NULL)) != -1) {
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
		case 'u':
			o->user = optarg;
			break;
		case 'd':
			o->detach = true;
			break;
		case 'f':
			o->force = true;
			break;
		case 'k':
			o->check = true;
			break;
		case 'l':
			if (log_level(optarg))
				return -EINVAL;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return -EINVAL;
		}
	}
	if (optind != argc || (o->check && o->detach) || (!o->node && !o->check) ||
	    (o->force && !o->detach))
		return -EINVAL;
	return !o->node || name_valid(o->node) ? 0 : -EINVAL;
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
	for (unsigned int i = 0; i < c->n_services; i++)
		s->spaces |= c->services[i].route;
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
		if (!r && !s->route && s->hop == a->config.self->number)
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

/* From here on it has the rights of serving and no others. */
static int serve_as(struct agent *a)
{
	char error[512];

	if (dataplane_own(&a->dp, a->user.uid, a->user.gid)) {
		log_error("%s", dataplane_error());
		return -EPERM;
	}
	if (fault(FAULT_STOP_BEFORE_DROP))
		raise(SIGSTOP);
	if (!rights_serve(&a->user, error, sizeof(error)))
		return 0;
	log_error("%s", error);
	return -EPERM;
}

static int start(struct agent *a, const char *socket_path)
{
	int r = write_peers(a);

	r = r ? r : write_services(a);
	r = r ? r : units_adopt(a);
	if (!r)
		vips_sweep(a);
	if (r) {
		log_error("cannot write peers and services, or read units: %s", strerror(-r));
		return r;
	}
	r = nodes_start(a);
	r = r ? r : nexthops_start(a);
	r = r ? r : ending_start(a);
	r = r ? r : attach(a);
	r = r ? r : app_listen(a, socket_path);
	return r ? r : serve_as(a);
}

static int run(struct agent *a, const char *socket_path, char **argv, const char *config)
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
	r = r < 0 ? r : upgrade_start(a, argv, config);
	r = r < 0 ? r : start(a, socket_path);
	if (r < 0)
		return r;
	log_info("node %u is up, on %s, as user %u", a->config.self->number, socket_path,
		 geteuid());
	sd_notifyf(0, "READY=1\nSTATUS=Node %s (%u) is up", a->config.self->name,
		   a->config.self->number);
	r = sd_event_loop(a->event);
	sd_notify(0, "STOPPING=1");
	moves_stop(a);
	return r;
}

/* As soon as there is a process, whoever started it may tell it to upgrade: it will, once it
 * serves, where the signal would end it now. */
static void hold_hangup(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
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

int main(int argc, char **argv)
{
	struct dataplane_settings s;
	struct agent a = {};
	struct options o;
	char error[768], path[128];
	int r, pins;

	if (parse(argc, argv, &o)) {
		fputs(usage, stderr);
		return 2;
	}
	if (o.check)
		return config_check(o.config, o.node, stdout, stderr) ? 1 : 0;
	snprintf(path, sizeof(path), "ferryd[%s]", o.node);
	log_open(path);
	prctl(PR_SET_DUMPABLE, 0); /* queues of strangers pass through here */
	upgrade_take();
	if (fault_init())
		return 2;
	snprintf(path, sizeof(path), "/run/ferry/%s.sock", o.node);
	if (o.detach)
		return detach_node(o.node, o.socket ? o.socket : path, o.force);
	hold_hangup();
	if (rights_user(o.user, &a.user, error, sizeof(error)) ||
	    rights_start(error, sizeof(error)) ||
	    config_load(&a.config, o.config, o.node, error, sizeof(error))) {
		log_error("%s", error);
		return 1;
	}
	access_check(&a.config);
	if (!o.socket)
		run_dir_make(&a.user);
	if (peers_open(&a))
		return 1;
	settings(&a.config, &s);
	raise_limit();
	r = boot_id(a.boot);
	r = r ? r : rtnl_open(&a.rtnl);
	a.netns = r ? 0 : socket_netns(a.rtnl.fd);
	s.netns = a.netns;
	pins = upgrade_handed(HANDED_PINS);
	s.pins = pins < 0 ? 0 : pins;
	if (r) {
		log_error("cannot start: %s", strerror(-r));
		return 1;
	}
	if (dataplane_open(&a.dp, &s)) {
		log_error("%s", dataplane_error());
		return 1;
	}
	a.dp.filters = detach_filters;
	a.dp.filters_arg = &a.rtnl;
	r = run(&a, o.socket ? o.socket : path, argv, o.config);
	dataplane_close(&a.dp);
	return r ? 1 : 0;
}
