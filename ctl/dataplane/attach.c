// SPDX-License-Identifier: BSD-2-Clause
/*
 * The programs on devices: an XDP link each, pinned, and a TC filter on egress. A link or filter is
 * replaced in place, never detached first; what is taken off is taken off whole, or it is an error.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"
#include "egress.skel.h"
#include "steer.skel.h"

#define TC_PRIORITY 0x4652
#define TC_HANDLE 1

/* A pinned link, where it still holds this device. */
static int pinned_link(const char *path, uint32_t ifindex)
{
	struct bpf_link_info info = {};
	uint32_t size = sizeof(info);
	int fd = bpf_obj_get(path);

	if (fd < 0)
		return -errno;
	if (bpf_obj_get_info_by_fd(fd, &info, &size) || info.xdp.ifindex != ifindex) {
		close(fd);
		unlink(path); /* of a device that is gone */
		return -ENOENT;
	}
	return fd;
}

/* Who owns the device's XDP. Its name is for those who may look at another's program
 * (CAP_SYS_ADMIN): the agent at its start, where that is as root. */
static void describe_owner(uint32_t ifindex, char *text, size_t size)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, q);
	struct bpf_prog_info info = {};
	uint32_t n = sizeof(info), id;
	_cleanup_close_ int fd = -1;
	uint64_t tag;

	if (bpf_xdp_query((int)ifindex, 0, &q))
		q.prog_id = 0;
	id = q.prog_id     ? q.prog_id :
	     q.drv_prog_id ? q.drv_prog_id :
	     q.skb_prog_id ? q.skb_prog_id :
			     q.hw_prog_id;
	if (!id) {
		snprintf(text, size, "its driver may have no native XDP");
		return;
	}
	fd = bpf_prog_get_fd_by_id(id);
	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &n)) {
		snprintf(text, size,
			 "XDP program %u owns it: take that off (bpftool prog show id %u)", id, id);
		return;
	}
	memcpy(&tag, info.tag, sizeof(tag));
	snprintf(text, size, "XDP program %u ('%s', tag %016llx) owns it: take that off", id,
		 info.name, (unsigned long long)be64toh(tag));
}

static int attach_xdp(struct dataplane *d, const char *ifname, uint32_t ifindex)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	int program = bpf_program__fd(d->steer->progs.ferry_steer);
	char name[IFNAMSIZ + 8], path[PIN_PATH], owner[256];
	_cleanup_close_ int link = -1;

	snprintf(name, sizeof(name), "link_%s", ifname);
	link = pinned_link(pin_path(d, name, path), ifindex);
	if (link >= 0) {
		if (bpf_link_update(link, program, NULL))
			return dataplane_fail(-errno, "cannot replace the XDP program of %s: %s",
					      ifname, strerror(errno));
		return 0;
	}
	link = bpf_link_create(program, (int)ifindex, BPF_XDP, &opts);
	if (link < 0) {
		int r = -errno;

		describe_owner(ifindex, owner, sizeof(owner));
		return dataplane_fail(r, "cannot attach to %s in native mode: %s; %s", ifname,
				      strerror(-r), owner);
	}
	if (bpf_obj_pin(link, path))
		return dataplane_fail(-errno, "cannot pin %s/%s: %s", d->root, name,
				      strerror(errno));
	return 0;
}

static int attach_tc(struct dataplane *d, const char *ifname, uint32_t ifindex)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = BPF_TC_EGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY,
		    .flags = BPF_TC_F_REPLACE,
		    .prog_fd = bpf_program__fd(d->egress->progs.ferry_egress));
	int r = bpf_tc_hook_create(&hook);

	if (r && r != -EEXIST)
		return dataplane_fail(r, "cannot add clsact to %s: %s", ifname, strerror(-r));
	r = bpf_tc_attach(&hook, &opts);
	return r ? dataplane_fail(r, "cannot attach to %s's egress: %s", ifname, strerror(-r)) : 0;
}

int dataplane_attach(struct dataplane *d, const char *ifname)
{
	uint32_t ifindex = if_nametoindex(ifname);
	int r;

	if (!ifindex)
		return dataplane_fail(-ENODEV, "no device %s in this network namespace", ifname);
	/* the fence first: a unit that may not send must not, whatever comes in */
	r = attach_tc(d, ifname, ifindex);
	return r ? r : attach_xdp(d, ifname, ifindex);
}

/* Takes the fence and the program off the device of a pinned link. */
static int detach_link(const char *path, const char *ifname)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .attach_point = BPF_TC_EGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY);
	struct bpf_link_info info = {};
	uint32_t size = sizeof(info);
	_cleanup_close_ int fd = bpf_obj_get(path);
	int r;

	if (fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &size) && info.xdp.ifindex) {
		hook.ifindex = (int)info.xdp.ifindex;
		if (if_nametoindex(ifname) != info.xdp.ifindex)
			return dataplane_fail(-ENODEV,
					      "%s is not in this network namespace: detach in the "
					      "node's own",
					      ifname);
		r = bpf_tc_detach(&hook, &opts);
		if (r && r != -ENOENT && r != -EINVAL) /* EINVAL: no clsact */
			return dataplane_fail(r, "cannot detach from %s's egress: %s", ifname,
					      strerror(-r));
	}
	unlink(path);
	return 0;
}

static bool listed(const char *ifname, const char (*ifnames)[IFNAMSIZ], unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(ifname, ifnames[i]))
			return true;
	return false;
}

int dataplane_prune_links(struct dataplane *d, const char (*ifnames)[IFNAMSIZ], unsigned int n)
{
	DIR *dir = opendir(d->pins);
	char path[PIN_PATH];
	int r = 0;

	for (struct dirent *e; !r && dir && (e = readdir(dir));) {
		if (strncmp(e->d_name, "link_", 5) || listed(e->d_name + 5, ifnames, n))
			continue;
		r = detach_link(pin_path(d, e->d_name, path), e->d_name + 5);
	}
	if (dir)
		closedir(dir);
	return r;
}

int dataplane_detach(struct dataplane *d)
{
	int r = dataplane_prune_links(d, NULL, 0);
	char path[PIN_PATH];

	for (int i = 0; !r && i < MAP_COUNT; i++)
		unlink(pin_path(d, map_names[i], path));
	if (!r && rmdir(d->root) && errno != ENOENT)
		r = dataplane_fail(-errno, "cannot remove %s: %s", d->root, strerror(errno));
	return r;
}
