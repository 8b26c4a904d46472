// SPDX-License-Identifier: BSD-2-Clause
/* Who binds and listens where it is guarded, from bpf/arrive.bpf.c; see guard.h. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "arrive.skel.h"
#include "base/log.h"
#include "guard/guard.h"

/* The root of the control groups of version 2, where every process is below. */
static int cgroup_root(void)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	int fd = -ENOENT;

	while (f && fd < 0 && (m = getmntent(f)))
		if (!strcmp(m->mnt_type, "cgroup2")) {
			fd = open(m->mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (fd < 0)
				fd = -errno;
		}
	if (f)
		endmntent(f);
	return fd;
}

static int attach(struct daemon *d, struct arrive_bpf *b, int cgroup)
{
	struct bpf_link *links[] = { bpf_program__attach_cgroup(b->progs.bind4, cgroup),
				     bpf_program__attach_cgroup(b->progs.bind6, cgroup),
				     bpf_program__attach(b->progs.state) };
	int r = 0;

	for (int i = 0; i < 3; i++) {
		if (!links[i])
			r = -errno;
		else
			d->links[i] = fcntl(bpf_link__fd(links[i]), F_DUPFD_CLOEXEC, 3);
		bpf_link__destroy(links[i]);
	}
	return r;
}

int arrive_open(struct daemon *d, char words[WORDS])
{
	_cleanup_close_ int cgroup = cgroup_root();
	struct arrive_bpf *b;
	int r;

	if (cgroup < 0) {
		snprintf(words, WORDS, "no cgroup2 file system is mounted (mount -t cgroup2 cgroup2 "
				       "/sys/fs/cgroup): whoever binds could not be seen");
		return cgroup;
	}
	b = arrive_bpf__open_and_load();
	if (!b) {
		r = -errno;
		snprintf(words, WORDS, "the programs cannot be loaded: %s (CAP_BPF, CAP_PERFMON and "
				       "CAP_NET_ADMIN are needed, and Linux 6.1)",
			 strerror(-r));
		return r;
	}
	r = attach(d, b, cgroup);
	if (r)
		snprintf(words, WORDS, "the programs cannot be attached: %s", strerror(-r));
	d->ports = fcntl(bpf_map__fd(b->maps.ports), F_DUPFD_CLOEXEC, 3);
	d->unmet = fcntl(bpf_map__fd(b->maps.unmet), F_DUPFD_CLOEXEC, 3);
	d->events = fcntl(bpf_map__fd(b->maps.events), F_DUPFD_CLOEXEC, 3);
	arrive_bpf__destroy(b);
	return r;
}

int arrive_set(struct daemon *d, const struct listener_port *at, bool learn)
{
	uint32_t how = learn ? LISTENER_LEARN : LISTENER_KNOWN;

	return bpf_map_update_elem(d->ports, at, &how, BPF_ANY) ? -errno : 0;
}

void arrive_clear(struct daemon *d, const struct listener_port *at)
{
	bpf_map_delete_elem(d->ports, at);
}

void arrive_go_on(struct daemon *d, pid_t pid)
{
	uint32_t key = (uint32_t)pid;

	if (!bpf_map_delete_elem(d->unmet, &key))
		kill(pid, SIGCONT);
}

void arrive_meet(struct daemon *d)
{
	struct listener_port at;
	uint32_t pid;

	while (!bpf_map_get_next_key(d->unmet, NULL, &pid)) {
		struct guard *g = bpf_map_lookup_elem(d->unmet, &pid, &at) ? NULL :
									      guard_find(d, &at);

		if (g)
			guard_meet(g, (pid_t)pid);
		arrive_go_on(d, (pid_t)pid);
	}
}

static int on_event(void *data, void *event, size_t size)
{
	const struct listener_event *e = event;
	struct daemon *d = data;
	struct guard *g = guard_find(d, &e->at);

	(void)size;
	if ((pid_t)e->pid == getpid())
		return 0; /* a holder */
	if (g && e->listens)
		guard_meet(g, (pid_t)e->pid);
	else if (g)
		guard_refresh(g);
	arrive_go_on(d, (pid_t)e->pid);
	return 0;
}

static int on_ring(sd_event_source *s, int fd, uint32_t events, void *data)
{
	(void)s, (void)fd, (void)events;
	ring_buffer__consume(data);
	return 0;
}

int arrive_watch(struct daemon *d)
{
	struct ring_buffer *ring = ring_buffer__new(d->events, on_event, d, NULL);

	if (!ring)
		return -errno;
	ring_buffer__consume(ring); /* what came when nobody was here */
	return sd_event_add_io(d->event, NULL, ring_buffer__epoll_fd(ring), 1 /* EPOLLIN */, on_ring,
			       ring);
}
