/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bpf file system of the program's own, in a mount namespace of its own, as working directory:
 * what is pinned there is gone when the program ends.
 */
#ifndef BPFFS_H
#define BPFFS_H

#include <sys/mount.h>
#include "rule.h"

static inline void bpffs(void)
{
	need(!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	need(!mount("rule", "/sys/fs/bpf", "bpf", 0, NULL) && !chdir("/sys/fs/bpf"));
}

#endif
