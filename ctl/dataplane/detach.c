// SPDX-License-Identifier: BSD-2-Clause
/*
 * Taking programs off devices, the other way about than attach.c puts them there: first what lets
 * packets in, last the fence, so that a unit that may not send does not send while its node is
 * taken off. What others have on a device stays: their filters, and a clsact qdisc that was there
 * before or that something of theirs hangs on. Each step may be done again after a failure.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"

#define FENCE_NAME "ferry_egress" /* bpf/egress.bpf.c */

/* Whether the filter in the fence's place is a fence; who may not look (it takes CAP_SYS_ADMIN) has
 * to go by the place. */
static bool fence_there(uint32_t ifindex)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = BPF_TC_EGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY);
	struct bpf_prog_info info = {};
	uint32_t size = sizeof(info);
	_cleanup_close_ int fd = -1;

	if (bpf_tc_query(&hook, &opts))
		return false;
	fd = bpf_prog_get_fd_by_id(opts.prog_id);
	if (fd < 0 && errno == EPERM)
		return true;
	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &size) &&
	       !strcmp(info.name, FENCE_NAME);
}

int fence_off(struct dataplane *d, uint32_t ifindex, bool clsact)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = BPF_TC_EGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY);
	int filters = d->filters(d->filters_arg, ifindex), r = 0;

	if (filters < 0)
		return dataplane_fail(filters, "cannot list the filters of device %u: %s", ifindex,
				      strerror(-filters));
	if (filters && fence_there(ifindex)) {
		r = bpf_tc_detach(&hook, &opts);
		filters--;
	}
	hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS; /* the qdisc itself */
	if (!r && clsact && !filters)
		r = bpf_tc_hook_destroy(&hook);
	return r && r != -ENOENT ? dataplane_fail(r, "cannot take the fence off device %u: %s",
						  ifindex, strerror(-r)) :
				   0;
}

/* The device that the pinned link holds, 0: it is gone, or XDP was taken off it. */
static uint32_t held(int link)
{
	struct bpf_link_info info = {};
	uint32_t size = sizeof(info);

	return link >= 0 && !bpf_obj_get_info_by_fd(link, &info, &size) ? info.xdp.ifindex : 0;
}

typedef int (*link_visit)(struct dataplane *d, const char *path, const char *ifname, void *arg);

/* Every pinned link. A visit may take its pins away, so that the names are read first. */
static int for_each_link(struct dataplane *d, link_visit visit, void *arg)
{
	struct dirent **names;
	int n = scandir(d->pins, &names, NULL, alphasort), r = 0;
	char path[512];

	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;

		snprintf(path, sizeof(path), "%s/%s", d->pins, name);
		/* no device has a colon in its name */
		if (!r && !strncmp(name, "link_", 5) && !strchr(name, ':'))
			r = visit(d, path, name + 5, arg);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return n < 0 ? dataplane_fail(-errno, "cannot read %s: %s", d->root, strerror(errno)) : r;
}

static int count_held(struct dataplane *d, const char *path, const char *ifname, void *arg)
{
	_cleanup_close_ int fd = bpf_obj_get(path);
	uint32_t ifindex = held(fd);

	(void)d;
	if (ifindex && ifindex != if_nametoindex(ifname))
		return -ENODEV;
	*(int *)arg += ifindex != 0;
	return 0;
}

int dataplane_attached(struct dataplane *d, uint64_t netns)
{
	int n = 0, r = for_each_link(d, count_held, &n);

	d->home = d->control.netns ? d->control.netns == (uint32_t)netns : n > 0;
	if (r == -ENODEV || (!r && n && !d->home))
		return dataplane_fail(-ENODEV, "this is not the network namespace of the node: its "
					       "devices are in another one, detach there");
	return r ? r : n;
}

static int steer_off(struct dataplane *d, const char *path, const char *ifname, void *arg)
{
	_cleanup_close_ int fd = bpf_obj_get(path);

	(void)d, (void)arg;
	/* to let the pin go would take it off, too, but some time later */
	if (held(fd) && bpf_link_detach(fd))
		return dataplane_fail(-errno, "cannot take XDP off %s: %s", ifname,
				      strerror(errno));
	return 0;
}

int dataplane_detach_steer(struct dataplane *d)
{
	return for_each_link(d, steer_off, NULL);
}

/* Where XDP is off already, a fence tells that the device of that name is the one that was ours. */
static int link_off(struct dataplane *d, const char *path, const char *ifname, void *arg)
{
	uint32_t ifindex = d->home ? if_nametoindex(ifname) : 0;
	_cleanup_close_ int fd = bpf_obj_get(path);
	bool ours = ifindex && (held(fd) == ifindex || fence_there(ifindex));
	char claim[520];
	int r = steer_off(d, path, ifname, arg);

	snprintf(claim, sizeof(claim), "%s" CLSACT_CLAIM, path);
	r = r || !ours ? r : fence_off(d, ifindex, !access(claim, F_OK));
	if (r)
		return r;
	unlink(claim);
	unlink(path);
	return 0;
}

struct list {
	const char (*ifnames)[IFNAMSIZ];
	unsigned int n;
};

static int unlisted_off(struct dataplane *d, const char *path, const char *ifname, void *arg)
{
	const struct list *l = arg;

	for (unsigned int i = 0; i < l->n; i++)
		if (!strcmp(ifname, l->ifnames[i]))
			return 0;
	return link_off(d, path, ifname, NULL);
}

int dataplane_prune_links(struct dataplane *d, const char (*ifnames)[IFNAMSIZ], unsigned int n)
{
	struct list l = { ifnames, n };

	return for_each_link(d, unlisted_off, &l);
}

/* Whatever a build of another layout may have pinned, too. */
static void unpin_all(struct dataplane *d)
{
	DIR *dir = opendir(d->pins);
	char path[512];

	for (struct dirent *e; dir && (e = readdir(dir));) {
		snprintf(path, sizeof(path), "%s/%s", d->pins, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (dir)
		closedir(dir);
}

int dataplane_detach(struct dataplane *d)
{
	int r = for_each_link(d, link_off, NULL);

	if (r)
		return r;
	unpin_all(d);
	if (rmdir(d->root) && errno != ENOENT)
		return dataplane_fail(-errno, "cannot remove %s: %s", d->root, strerror(errno));
	rmdir(PIN_ROOT); /* not while another node is pinned there */
	return 0;
}
