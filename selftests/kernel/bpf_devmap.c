// SPDX-License-Identifier: BSD-2-Clause
/*
 * The flags of a device map that are read back are not those that it was made with.
 * Relied on: ctl/dataplane/dataplane.c (set_pin takes a pinned one without libbpf's comparison).
 * Kernel: kernel/bpf/devmap.c, dev_map_init_map: BPF_F_RDONLY_PROG.
 */
#include <bpf/bpf.h>
#include "rule.h"

static uint32_t flags(enum bpf_map_type type, uint32_t value)
{
	struct bpf_map_info info_of = {};
	uint32_t size = sizeof(info_of);
	int fd = bpf_map_create(type, "rule", 4, value, 4, NULL);

	need(fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info_of, &size));
	close(fd);
	return info_of.map_flags;
}

int main(void)
{
	rule(flags(BPF_MAP_TYPE_HASH, 4) == 0, "a hash map's flags are not those it was made with");
	rule(flags(BPF_MAP_TYPE_DEVMAP_HASH, 8) == BPF_F_RDONLY_PROG,
	     "a device map's flags are those it was made with, or others than expected");
	return 0;
}
