// SPDX-License-Identifier: BSD-2-Clause
/*
 * Life cycle of the programs: lock (pins.c), adopt or create, load; attach.c puts them on devices.
 * What is pinned serves on when the agent is gone.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"
#include "egress.skel.h"
#include "steer.skel.h"

static void set_root(struct dataplane *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	d->lock = d->grace_inner = d->grace_outer = -1;
	for (int i = 0; i < MAP_COUNT; i++)
		d->map[i] = -1;
	snprintf(d->root, sizeof(d->root), "%s/%s", PIN_ROOT, name);
	snprintf(d->pins, sizeof(d->pins), "%s", d->root);
}

/* Sizes and seed of what is pinned already; else fresh ones. */
static int choose_control(struct dataplane *d, const struct dataplane_settings *s)
{
	char path[PIN_PATH];
	uint32_t zero = 0;
	_cleanup_close_ int fd = bpf_obj_get(pin_path(d, map_names[MAP_CONTROL], path));

	if (fd >= 0 && !bpf_map_lookup_elem(fd, &zero, &d->control) && d->control.layout) {
		if (d->control.layout != FERRY_LAYOUT)
			return dataplane_fail(-EPROTO, "what is pinned under %s has layout %u, this "
						       "build knows %u: detach it first",
					      d->root, d->control.layout, FERRY_LAYOUT);
		if (d->control.node != s->node)
			return dataplane_fail(-EINVAL, "%s was pinned for node number %u, the "
						       "configuration says %u: detach it first",
					      d->root, d->control.node, s->node);
		if (strncmp(d->control.name, s->name, sizeof(d->control.name) - 1))
			return dataplane_fail(-EINVAL, "the pins that were handed on for %s are those "
						       "of node %.31s: end its agent, start this one "
						       "without them",
					      d->root, d->control.name);
		return 0;
	}
	d->control = (struct ferry_control){
		.layout = FERRY_LAYOUT,
		.node = s->node,
		.buckets4 = s->buckets4,
		.buckets6 = s->buckets6,
		.units = s->units,
	};
	snprintf(d->control.name, sizeof(d->control.name), "%s", s->name);
	if (random_bytes(&d->control.seed, sizeof(d->control.seed)))
		return dataplane_fail(-EIO, "no random numbers for the flow tables' seed");
	return boot_id(d->control.boot);
}

/* By path: libbpf takes what is pinned there, where it matches, or pins what it makes. */
static int set_pin(struct dataplane *d, struct bpf_map *map, enum map_id id)
{
	_cleanup_close_ int fd = -1;
	char path[PIN_PATH];

	pin_path(d, map_names[id], path);
	/* the kernel adds a flag to a device map, which libbpf 1.1 then calls a mismatch */
	if (id == MAP_DEVICES)
		fd = bpf_obj_get(path);
	return fd >= 0 ? bpf_map__reuse_fd(map, fd) : bpf_map__set_pin_path(map, path);
}

static int set_pins(struct dataplane *d, struct bpf_object *object)
{
	struct bpf_map *map;
	int r = 0;

	bpf_object__for_each_map(map, object)
		for (int i = 0; !r && i < MAP_COUNT; i++)
			if (!strcmp(bpf_map__name(map), map_names[i]))
				r = set_pin(d, map, i);
	return r;
}

static int size_maps(struct dataplane *d, struct bpf_object *object, uint32_t stash)
{
	const struct {
		const char *name;
		uint32_t entries;
	} sizes[] = {
		{ "flows4", d->control.buckets4 }, { "flows6", d->control.buckets6 },
		{ "words", d->control.units },     { "records", d->control.units },
		{ "stash", stash },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct bpf_map *map = bpf_object__find_map_by_name(object, sizes[i].name);
		int r = map ? bpf_map__set_max_entries(map, sizes[i].entries) : -ENOENT;

		if (r)
			return r;
	}
	return 0;
}

/* Settings that both programs share. */
#define APPLY(rodata, d, s)                                                                        \
	do {                                                                                       \
		(rodata)->cfg_seed = (d)->control.seed;                                            \
		(rodata)->cfg_mask4 = (d)->control.buckets4 - 1;                                   \
		(rodata)->cfg_mask6 = (d)->control.buckets6 - 1;                                   \
		(rodata)->cfg_fence_in = !(s)->no_fence_in;                                        \
		(rodata)->cfg_fence_out = !(s)->no_fence_out;                                      \
	} while (0)

static void apply_steer(struct steer_bpf *skel, const struct dataplane *d,
			const struct dataplane_settings *s)
{
	uint8_t vni[4] = { (uint8_t)(s->vni >> 16), (uint8_t)(s->vni >> 8), (uint8_t)s->vni, 0 };

	APPLY(skel->rodata, d, s);
	skel->rodata->cfg_node = s->node;
	memcpy((void *)&skel->rodata->cfg_self4, s->self4, 4);
	memcpy((void *)skel->rodata->cfg_self6, s->self6, 16);
	memcpy((void *)&skel->rodata->cfg_vni, vni, 4);
	memcpy((void *)&skel->rodata->cfg_tag, s->tag, 8);
}

/* Like the other tables, it keeps the size that it was made with. */
static uint32_t stash_size(const struct dataplane *d, const struct dataplane_settings *s)
{
	char path[PIN_PATH];
	struct bpf_map_info info = {};
	uint32_t size = sizeof(info);
	_cleanup_close_ int fd = bpf_obj_get(pin_path(d, map_names[MAP_STASH], path));

	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &size) ? info.max_entries : s->stash;
}

static int load(struct dataplane *d, const struct dataplane_settings *s)
{
	uint32_t stash = stash_size(d, s);
	int r;

	d->steer = steer_bpf__open();
	d->egress = egress_bpf__open();
	if (!d->steer || !d->egress)
		return dataplane_fail(-errno, "cannot open the programs: %s", strerror(errno));
	apply_steer(d->steer, d, s);
	APPLY(d->egress->rodata, d, s);
	d->egress->rodata->cfg_spaces = s->spaces;
	r = size_maps(d, d->steer->obj, stash);
	r = r ? r : size_maps(d, d->egress->obj, stash);
	r = r ? r : set_pins(d, d->steer->obj);
	/* steer makes and pins every map, egress finds them */
	r = r ? r : steer_bpf__load(d->steer);
	r = r ? r : set_pins(d, d->egress->obj);
	r = r ? r : egress_bpf__load(d->egress);
	if (r)
		return dataplane_fail(r, "cannot load the programs: %s; CAP_BPF, CAP_NET_ADMIN and "
					 "CAP_PERFMON are needed, and maps of another size or "
					 "layout under %s must be detached first",
				      strerror(-r), d->root);
	return 0;
}

static int libbpf_quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[512];

	if (level != LIBBPF_WARN)
		return 0;
	vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = 0;
	if (strstr(line, "Exclusivity flag on")) /* clsact is there already, which is no trouble */
		return 0;
	log_warning("%s", line);
	return 0;
}

static int grace_maps(struct dataplane *d)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);

	d->grace_inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "grace_inner", 4, 4, 1, NULL);
	opts.inner_map_fd = (uint32_t)d->grace_inner;
	d->grace_outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "grace_outer", 4, 4, 1, &opts);
	return d->grace_outer < 0 ? dataplane_fail(-errno, "cannot make the grace maps: %s",
						   strerror(errno)) :
				    0;
}

/* An update of a map in a map returns after the kernel has waited for running programs
 * (kernel/bpf/syscall.c, maybe_wait_bpf_programs). */
int dataplane_grace(struct dataplane *d)
{
	uint32_t zero = 0;

	if (bpf_map_update_elem(d->grace_outer, &zero, &d->grace_inner, BPF_ANY))
		return -errno;
	memset(d->unit_freed, 0, d->control.units);
	return 0;
}

static int grace_for_table(void *arg)
{
	return dataplane_grace(arg);
}

int dataplane_open(struct dataplane *d, const struct dataplane_settings *s)
{
	uint32_t zero = 0;
	int r;

	set_root(d, s->name);
	d->writer = d->home = true;
	libbpf_set_print(libbpf_quiet);
	r = lock_root(d, s->pins);
	r = r ? r : choose_control(d, s);
	d->control.netns = (uint32_t)s->netns;
	r = r ? r : load(d, s);
	if (!r && bpf_map_update_elem(bpf_map__fd(d->steer->maps.control), &zero, &d->control,
				      BPF_ANY))
		r = dataplane_fail(-errno, "cannot write the control map: %s", strerror(errno));
	r = r ? r : grace_maps(d);
	r = r ? r : maps_open(d);
	if (r) {
		dataplane_close(d);
		return r;
	}
	d->flows.stash_max = bpf_map__max_entries(d->steer->maps.stash);
	d->flows.grace = grace_for_table;
	d->flows.grace_arg = d;
	/* what an earlier agent freed is not known: nobody may still be looking at it */
	return dataplane_grace(d);
}

int dataplane_view(struct dataplane *d, const char *name)
{
	int r;

	set_root(d, name);
	r = check_bpffs();
	r = r ? r : maps_open(d);
	if (r)
		dataplane_close(d);
	return r;
}

int dataplane_take(struct dataplane *d, const char *name)
{
	int r;

	set_root(d, name);
	libbpf_set_print(libbpf_quiet);
	r = lock_root(d, LOCK_IF_THERE);
	if (r)
		return r;
	if (maps_open(d)) { /* of another layout, or never whole */
		maps_close(d);
		d->control = (struct ferry_control){};
	}
	return 0;
}

void dataplane_close(struct dataplane *d)
{
	maps_close(d);
	steer_bpf__destroy(d->steer);
	egress_bpf__destroy(d->egress);
	close_fd(&d->grace_inner);
	close_fd(&d->grace_outer);
	close_fd(&d->lock);
}
