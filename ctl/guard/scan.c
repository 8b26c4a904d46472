// SPDX-License-Identifier: BSD-2-Clause
/* Servers that listened on a guard's port before it was there; see guard.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "guard/guard.h"

static bool is_in(pid_t pid, const struct stat *netns)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	return !stat(path, &st) && st.st_ino == netns->st_ino && st.st_dev == netns->st_dev;
}

int guard_scan(struct guard *g)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	struct stat netns;
	int joined = 0;

	if (!d)
		return -errno;
	if (fstat(g->netns, &netns)) {
		closedir(d);
		return -errno;
	}
	while ((e = readdir(d))) {
		pid_t pid = (pid_t)atoi(e->d_name);

		if (pid > 0 && pid != getpid() && pid != g->d->keeper && is_in(pid, &netns))
			joined += guard_meet(g, pid);
	}
	closedir(d);
	return joined;
}
