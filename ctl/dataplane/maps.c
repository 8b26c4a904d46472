// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pinned maps, opened by name and mapped; reading them needs no program and no agent. Layout and
 * sizes are read from the control map first, and anything but FERRY_LAYOUT is refused.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"

const char *const map_names[MAP_COUNT] = {
#define X(id, name) #name,
	MAPS(X)
#undef X
};

static char error_text[512];

const char *dataplane_error(void)
{
	return error_text;
}

int dataplane_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error_text, sizeof(error_text), format, args);
	va_end(args);
	return error;
}

/* Not BPF_F_RDONLY: the kernel refuses to map, even read-only, what was opened so (bpf_map_mmap
 * wants VM_SHARED, which mmap drops for a file that cannot be written). */
static int pinned(const struct dataplane *d, const char *name)
{
	char path[PIN_PATH];
	int fd = bpf_obj_get(pin_path(d, name, path));

	return fd < 0 ? -errno : fd;
}

static void *map_memory(const struct dataplane *d, enum map_id id, size_t size)
{
	int prot = d->writer ? PROT_READ | PROT_WRITE : PROT_READ;
	void *p = mmap(NULL, size, prot, MAP_SHARED, d->map[id], 0);

	return p == MAP_FAILED ? NULL : p;
}

static int read_control(struct dataplane *d)
{
	uint32_t zero = 0;

	if (bpf_map_lookup_elem(d->map[MAP_CONTROL], &zero, &d->control))
		return dataplane_fail(-errno, "cannot read the control map under %s: %s", d->root,
				      strerror(errno));
	if (d->control.layout != FERRY_LAYOUT)
		return dataplane_fail(-EPROTO,
				      "what is pinned under %s has layout %u, this build knows %u: "
				      "move its units away and detach it with the build that made it",
				      d->root, d->control.layout, FERRY_LAYOUT);
	return 0;
}

static int map_all(struct dataplane *d)
{
	const struct ferry_control *c = &d->control;
	struct table *t = &d->flows;

	t->bucket4 = map_memory(d, MAP_FLOWS4, sizeof(*t->bucket4) * c->buckets4);
	t->bucket6 = map_memory(d, MAP_FLOWS6, sizeof(*t->bucket6) * c->buckets6);
	d->words = map_memory(d, MAP_WORDS, sizeof(*d->words) * c->units);
	d->records = map_memory(d, MAP_RECORDS, sizeof(*d->records) * c->units);
	d->nexthops = map_memory(d, MAP_NEXTHOPS, sizeof(*d->nexthops) * FERRY_NODES);
	if (!t->bucket4 || !t->bucket6 || !d->words || !d->records || !d->nexthops)
		return dataplane_fail(-errno, "cannot map the tables under %s: %s", d->root,
				      strerror(errno));
	t->buckets4 = c->buckets4;
	t->buckets6 = c->buckets6;
	t->seed = c->seed;
	t->stash = d->map[MAP_STASH];
	d->unit_freed = calloc(c->units, 1);
	return d->unit_freed && !table_init(t) ? 0 : dataplane_fail(-ENOMEM, "out of memory");
}

static int no_map(const struct dataplane *d, const char *name, int error)
{
	return dataplane_fail(error, "cannot open %s/%s: %s; %s", d->root, name, strerror(-error),
			      error == -ENOENT ? "no node of that name is set up here: ls " PIN_ROOT :
			      error == -EACCES || error == -EPERM ? "only root may read pins" :
								    "is it a pin of ferry's?");
}

int maps_open(struct dataplane *d)
{
	int r;

	for (int i = 0; i < MAP_COUNT; i++) {
		d->map[i] = pinned(d, map_names[i]);
		if (d->map[i] < 0)
			return no_map(d, map_names[i], d->map[i]);
	}
	r = read_control(d);
	return r ? r : map_all(d);
}

static void unmap(void *p, size_t size)
{
	if (p)
		munmap(p, size);
}

void maps_close(struct dataplane *d)
{
	const struct ferry_control *c = &d->control;

	unmap(d->flows.bucket4, sizeof(*d->flows.bucket4) * c->buckets4);
	unmap(d->flows.bucket6, sizeof(*d->flows.bucket6) * c->buckets6);
	unmap(d->words, sizeof(*d->words) * c->units);
	unmap(d->records, sizeof(*d->records) * c->units);
	unmap(d->nexthops, sizeof(*d->nexthops) * FERRY_NODES);
	table_close(&d->flows);
	free(d->unit_freed);
	d->flows.bucket4 = NULL;
	d->flows.bucket6 = NULL;
	d->words = NULL;
	d->records = NULL;
	d->nexthops = NULL;
	d->unit_freed = NULL;
	for (int i = 0; i < MAP_COUNT; i++)
		close_fd(&d->map[i]);
}

int dataplane_peer(struct dataplane *d, const uint8_t addr[16], uint32_t ifindex, uint32_t node)
{
	struct ferry_peer_key key = { .ifindex = ifindex };

	memcpy(key.addr, addr, 16);
	return bpf_map_update_elem(d->map[MAP_PEERS], &key, &node, BPF_ANY) ? -errno : 0;
}

int dataplane_service(struct dataplane *d, const struct ferry_service_key *key, uint32_t hop)
{
	struct ferry_service s = { .hop = hop };

	return bpf_map_update_elem(d->map[MAP_SERVICES], key, &s, BPF_ANY) ? -errno : 0;
}

int dataplane_services(struct dataplane *d, service_visit visit, void *arg)
{
	struct ferry_service_key key, next;
	int r = 0;

	for (int end = bpf_map_get_next_key(d->map[MAP_SERVICES], NULL, &next); !end && !r;
	     end = bpf_map_get_next_key(d->map[MAP_SERVICES], &key, &next)) {
		struct ferry_service s;

		key = next;
		if (!bpf_map_lookup_elem(d->map[MAP_SERVICES], &key, &s))
			r = visit(&key, s.hop, arg);
	}
	return r;
}

/* A hash map's walk begins anew where the key it stands on is gone, so that one pass finds one. */
static int prune(int fd, void *key, void *next, key_wanted wanted, void *arg)
{
	bool found = true;

	while (found) {
		found = false;
		for (int end = bpf_map_get_next_key(fd, NULL, next); !end && !found;
		     end = bpf_map_get_next_key(fd, key, next)) {
			memcpy(key, next, sizeof(struct ferry_flow));
			found = !wanted(key, arg);
			if (found && bpf_map_delete_elem(fd, key))
				return -errno;
		}
	}
	return 0;
}

int dataplane_prune_peers(struct dataplane *d, key_wanted wanted, void *arg)
{
	struct ferry_flow room[2]; /* larger than any key */

	return prune(d->map[MAP_PEERS], &room[0], &room[1], wanted, arg);
}

int dataplane_prune_services(struct dataplane *d, key_wanted wanted, void *arg)
{
	struct ferry_flow room[2];

	return prune(d->map[MAP_SERVICES], &room[0], &room[1], wanted, arg);
}

int dataplane_counters(struct dataplane *d, uint64_t sum[FERRY_R_COUNT])
{
	int cpus = libbpf_num_possible_cpus();
	_cleanup_free_ uint64_t *values = cpus > 0 ? calloc((size_t)cpus, sizeof(*values)) : NULL;

	if (!values)
		return -ENOMEM;
	for (uint32_t reason = 0; reason < FERRY_R_COUNT; reason++) {
		sum[reason] = 0;
		if (bpf_map_lookup_elem(d->map[MAP_COUNTERS], &reason, values))
			return -errno;
		for (int i = 0; i < cpus; i++)
			sum[reason] += values[i];
	}
	return 0;
}
