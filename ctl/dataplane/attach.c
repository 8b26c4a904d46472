// SPDX-License-Identifier: BSD-2-Clause
/*
 * The programs on devices: an XDP link each, pinned, and a TC filter on egress. A link or filter is
 * replaced in place, never detached first; detach.c takes them off. Where the filter's clsact qdisc
 * was not there before, the link is pinned a second time, as link_DEVICE:clsact: that the qdisc is
 * ours to remove is then known for as long as this very device is.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
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

/* A pinned link, where it still holds this device. */
static int pinned_link(const struct dataplane *d, const char *name, const char *claim,
		       uint32_t ifindex)
{
	struct bpf_link_info info = {};
	uint32_t size = sizeof(info);
	char path[PIN_PATH];
	int fd = bpf_obj_get(pin_path(d, name, path));

	if (fd < 0)
		return -errno;
	if (bpf_obj_get_info_by_fd(fd, &info, &size) || info.xdp.ifindex != ifindex) {
		close(fd);
		unlink(path); /* of a device that is gone */
		unlink(pin_path(d, claim, path));
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

static int pin(const struct dataplane *d, int link, const char *name)
{
	char path[PIN_PATH];

	if (!bpf_obj_pin(link, pin_path(d, name, path)) || errno == EEXIST)
		return 0;
	return dataplane_fail(-errno, "cannot pin %s/%s: %s", d->root, name, strerror(errno));
}

static int attach_xdp(struct dataplane *d, const char *ifname, uint32_t ifindex, bool clsact)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	int program = bpf_program__fd(d->steer->progs.ferry_steer), r;
	char name[IFNAMSIZ + 8], claim[IFNAMSIZ + 16], path[PIN_PATH], owner[256];
	_cleanup_close_ int link = -1;

	snprintf(name, sizeof(name), "link_%s", ifname);
	snprintf(claim, sizeof(claim), "%s" CLSACT_CLAIM, name);
	link = pinned_link(d, name, claim, ifindex);
	if (link >= 0) {
		if (bpf_link_update(link, program, NULL))
			return dataplane_fail(-errno, "cannot replace the XDP program of %s: %s",
					      ifname, strerror(errno));
		return clsact ? pin(d, link, claim) : 0;
	}
	link = bpf_link_create(program, (int)ifindex, BPF_XDP, &opts);
	if (link < 0) {
		r = -errno;
		describe_owner(ifindex, owner, sizeof(owner));
		return dataplane_fail(r, "cannot attach to %s in native mode: %s; %s", ifname,
				      strerror(-r), owner);
	}
	r = pin(d, link, name);
	r = r ? r : clsact ? pin(d, link, claim) : 0;
	if (r)
		unlink(pin_path(d, name, path)); /* the caller takes the qdisc back */
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
	char name[IFNAMSIZ + 8], path[PIN_PATH];
	bool made = false;
	int r;

	if (!ifindex)
		return dataplane_fail(-ENODEV, "no device %s in this network namespace", ifname);
	/* the fence first: a unit that may not send must not, whatever comes in */
	r = attach_tc(d, ifname, ifindex, &made);
	r = r ? r : attach_xdp(d, ifname, ifindex, made);
	snprintf(name, sizeof(name), "link_%s", ifname);
	/* nothing steers there, and no pin would tell of the fence */
	if (r && access(pin_path(d, name, path), F_OK))
		fence_off(d, ifindex, made);
	return r;
}
