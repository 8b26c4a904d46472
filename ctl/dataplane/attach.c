// SPDX-License-Identifier: BSD-2-Clause
/*
 * The programs on devices: an XDP link each, pinned, and a TC filter on egress. A link or filter is
 * replaced in place, never detached first; detach.c takes them off. Where the filter's clsact qdisc
 * was not there before, the link is pinned a second time, as link_DEVICE:clsact: that the qdisc is
 * ours to remove is then known for as long as this very device is.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"
#include "egress.skel.h"
#include "steer.skel.h"

/* A pinned link, where it still holds this device. */
static int pinned_link(const char *path, const char *claim, uint32_t ifindex)
{
	struct bpf_link_info info = {};
	uint32_t size = sizeof(info);
	int fd = bpf_obj_get(path);

	if (fd < 0)
		return -errno;
	if (bpf_obj_get_info_by_fd(fd, &info, &size) || info.xdp.ifindex != ifindex) {
		close(fd);
		unlink(path); /* of a device that is gone */
		unlink(claim);
		return -ENOENT;
	}
	return fd;
}

static int pin(int link, const char *path)
{
	if (!bpf_obj_pin(link, path) || errno == EEXIST)
		return 0;
	return dataplane_fail(-errno, "cannot pin %s: %s", path, strerror(errno));
}

static int attach_xdp(struct dataplane *d, const char *ifname, uint32_t ifindex, bool clsact)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	int program = bpf_program__fd(d->steer->progs.ferry_steer), r;
	_cleanup_close_ int link = -1;
	char path[256], claim[264];

	snprintf(path, sizeof(path), "%s/link_%s", d->root, ifname);
	snprintf(claim, sizeof(claim), "%s" CLSACT_CLAIM, path);
	link = pinned_link(path, claim, ifindex);
	if (link >= 0) {
		if (bpf_link_update(link, program, NULL))
			return dataplane_fail(-errno, "cannot replace the XDP program of %s: %s",
					      ifname, strerror(errno));
		return clsact ? pin(link, claim) : 0;
	}
	link = bpf_link_create(program, (int)ifindex, BPF_XDP, &opts);
	if (link < 0)
		return dataplane_fail(-errno,
				      "cannot attach to %s in native mode: %s; another XDP program "
				      "may own it (ip link show %s), or its driver has no native XDP",
				      ifname, strerror(errno), ifname);
	r = pin(link, path);
	r = r ? r : clsact ? pin(link, claim) : 0;
	if (r)
		unlink(path); /* the caller takes the qdisc back */
	return r;
}

/* *made: there was no clsact. */
static int attach_tc(struct dataplane *d, const char *ifname, uint32_t ifindex, bool *made)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = BPF_TC_EGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = TC_HANDLE, .priority = TC_PRIORITY,
		    .flags = BPF_TC_F_REPLACE,
		    .prog_fd = bpf_program__fd(d->egress->progs.ferry_egress));
	int r = bpf_tc_hook_create(&hook);

	if (r && r != -EEXIST)
		return dataplane_fail(r, "cannot add clsact to %s: %s", ifname, strerror(-r));
	*made = !r;
	r = bpf_tc_attach(&hook, &opts);
	return r ? dataplane_fail(r, "cannot attach to %s's egress: %s", ifname, strerror(-r)) : 0;
}

int dataplane_attach(struct dataplane *d, const char *ifname)
{
	uint32_t ifindex = if_nametoindex(ifname);
	bool made = false;
	char path[256];
	int r;

	if (!ifindex)
		return dataplane_fail(-ENODEV, "no device %s in this network namespace", ifname);
	/* the fence first: a unit that may not send must not, whatever comes in */
	r = attach_tc(d, ifname, ifindex, &made);
	r = r ? r : attach_xdp(d, ifname, ifindex, made);
	snprintf(path, sizeof(path), "%s/link_%s", d->root, ifname);
	if (r && access(path, F_OK)) /* nothing steers there, and no pin would tell of the fence */
		fence_off(d, ifindex, made);
	return r;
}
