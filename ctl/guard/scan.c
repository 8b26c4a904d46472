// SPDX-License-Identifier: BSD-2-Clause
/* Processes that nobody has named: who listens, or has a socket, beside those that are known; see
 * guard.h. */
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

/* Every process but the agent and its keeper. 0 or -errno. */
static int each_process(struct daemon *d, void (*found)(pid_t pid, void *data), void *data)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;

	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		pid_t pid = (pid_t)atoi(e->d_name);

		if (pid > 0 && pid != getpid() && pid != d->keeper)
			found(pid, data);
	}
	closedir(dir);
	return 0;
}

struct scan {
	void (*found)(pid_t pid, void *data);
	void *data;
	struct stat netns;
};

static void on_process(pid_t pid, void *data)
{
	struct scan *s = data;

	if (is_in(pid, &s->netns))
		s->found(pid, s->data);
}

int scan_each(const struct guard *g, void (*found)(pid_t pid, void *data), void *data)
{
	struct scan s = { .found = found, .data = data };

	return fstat(g->netns, &s.netns) ? -errno : each_process(g->d, on_process, &s);
}

static void meet(pid_t pid, void *data)
{
	guard_meet(data, pid);
}

int guard_scan(struct guard *g)
{
	return scan_each(g, meet, g);
}

struct agents {
	const struct listener *like;
	pid_t pid;
};

static int on_holder(struct listener *l, void *data)
{
	struct agents *a = data;

	if (listener_same(l, a->like))
		a->pid = l->pid;
	return 0;
}

static void on_agent(pid_t pid, void *data)
{
	struct agents *a = data;
	char comm[COMM];

	inspect_comm(pid, comm);
	if (!strcmp(comm, "ferry-guard") || !strcmp(comm, "ferry-keeper"))
		inspect(pid, listener_port_of(a->like), on_holder, a);
}

pid_t scan_agent(struct daemon *d, const struct listener *l)
{
	struct agents a = { .like = l };

	each_process(d, on_agent, &a);
	return a.pid;
}

struct visit {
	struct group *group;
	void (*found)(struct group *g, uint32_t slot, const struct listener *l);
};

static int on_listener(struct listener *l, void *data)
{
	struct visit *v = data;

	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		struct member *m = &v->group->members[i];

		if (m->cookie != l->cookie || m->seen)
			continue;
		m->seen = true;
		v->found(v->group, i, l);
	}
	return 0;
}

static void visit_process(pid_t pid, void *data)
{
	const struct visit *v = data;

	inspect(pid, v->group->guard->at.port, on_listener, data);
}

void scan_members(struct group *g, void (*found)(struct group *g, uint32_t slot, const struct listener *l))
{
	struct visit v = { g, found };

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		g->members[i].seen = false;
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && !g->members[i].seen)
			visit_process(g->members[i].pid, &v);
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && !g->members[i].seen) {
			scan_each(g->guard, visit_process, &v);
			return;
		}
}
