// SPDX-License-Identifier: BSD-2-Clause
/*
 * A pinned map is mapped through a descriptor that may write only, to read it too.
 * Relied on: ctl/dataplane/maps.c (pinned: no BPF_F_RDONLY), docs/man/ferry.8 (who may read).
 * Kernel: kernel/bpf/syscall.c, bpf_map_mmap: VM_SHARED, which a read-only file is mapped without.
 */
#include <bpf/bpf.h>
#include <sys/mman.h>
#include "bpffs.h"

static int map_through(const char *path, uint32_t flags, int protection)
{
	LIBBPF_OPTS(bpf_obj_get_opts, opts, .file_flags = flags);
	int fd = bpf_obj_get_opts(path, &opts), error = 0;
	void *p;

	need(fd >= 0);
	p = mmap(NULL, 4096, protection, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		error = -errno;
	else
		munmap(p, 4096);
	close(fd);
	return error;
}

int main(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "rule", 4, 4096, 1, &opts);

	bpffs();
	need(fd >= 0 && !bpf_obj_pin(fd, "map"));
	rule(!map_through("map", 0, PROT_READ | PROT_WRITE), "a pinned map cannot be mapped");
	rule(!map_through("map", 0, PROT_READ), "a pinned map cannot be mapped to read");
	rule(map_through("map", BPF_F_RDONLY, PROT_READ) < 0,
	     "a map that was opened to read can be mapped");
	rule(map_through("map", BPF_F_RDONLY, PROT_READ | PROT_WRITE) == -EACCES,
	     "a map that was opened to read is mapped to write");
	return 0;
}
