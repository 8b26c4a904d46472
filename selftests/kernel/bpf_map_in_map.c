// SPDX-License-Identifier: BSD-2-Clause
/*
 * An update of a map of maps returns, and the map that is looked up afterwards is the new one.
 * Relied on: ctl/dataplane/dataplane.c (grace_maps: the update waits for readers).
 * Kernel: kernel/bpf/syscall.c, maybe_wait_bpf_programs.
 */
#include <bpf/bpf.h>
#include "rule.h"

static uint32_t id_of(int fd)
{
	struct bpf_map_info i = {};
	uint32_t size = sizeof(i);

	need(!bpf_obj_get_info_by_fd(fd, &i, &size));
	return i.id;
}

int main(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);
	int inner[2], outer;
	uint32_t zero = 0, id = 0;

	for (int i = 0; i < 2; i++)
		inner[i] = bpf_map_create(BPF_MAP_TYPE_ARRAY, "inner", 4, 4, 1, NULL);
	opts.inner_map_fd = (uint32_t)inner[0];
	outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "outer", 4, 4, 1, &opts);
	need(inner[0] >= 0 && inner[1] >= 0 && outer >= 0);
	for (int i = 0; i < 20; i++) {
		rule(!bpf_map_update_elem(outer, &zero, &inner[i % 2], BPF_ANY),
		     "a map of maps is not updated: %s", strerror(errno));
		need(!bpf_map_lookup_elem(outer, &zero, &id));
		rule(id == id_of(inner[i % 2]), "a map of maps has not the map that was put in");
	}
	return 0;
}
