// SPDX-License-Identifier: BSD-2-Clause
/*
 * One group: holders, the program that chooses, and who is given what; see guard.h. There are two
 * holders, so that one listens while the other is shut down: a listener gives its queue away when it
 * stops to listen.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/log.h"
#include "guard/guard.h"
#include "listener.skel.h"

#define BACKLOG 65535 /* the kernel cuts it to somaxconn */
#define AGAIN_US 20000
#define SOME_ROOM 1

static int put(struct group *g, uint32_t slot, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(g->socks, &slot, &value, BPF_ANY);
}

int group_map(struct group *g)
{
	void *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, g->group_fd, 0);
	void *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, g->slots_fd, 0);

	_Static_assert(sizeof(struct listener_slot) * LISTENER_SLOTS <= 4096, "one page");
	if (a == MAP_FAILED || b == MAP_FAILED)
		return -errno;
	g->view = a;
	g->slots = b;
	return 0;
}

static int copy_fd(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int load(struct group *g, char words[WORDS])
{
	struct listener_bpf *b = listener_bpf__open_and_load();
	int r;

	if (!b) {
		r = -errno;
		snprintf(words, WORDS, "the listener program cannot be loaded: %s (CAP_BPF and "
				       "CAP_NET_ADMIN are needed, and Linux 6.1)",
			 strerror(-r));
		return r;
	}
	g->program = copy_fd(bpf_program__fd(b->progs.listener));
	g->socks = copy_fd(bpf_map__fd(b->maps.socks));
	g->group_fd = copy_fd(bpf_map__fd(b->maps.group));
	g->slots_fd = copy_fd(bpf_map__fd(b->maps.slots));
	g->counts = copy_fd(bpf_map__fd(b->maps.counts));
	listener_bpf__destroy(b);
	return group_map(g);
}

static int listen_as(struct group *g, unsigned int which)
{
	if (listen(g->hold[which], BACKLOG) || put(g, which, g->hold[which]))
		return -errno;
	__atomic_store_n(&g->view->hold, which, __ATOMIC_RELEASE);
	g->active = which;
	return 0;
}

static void forget(struct group *g, uint32_t slot)
{
	g->slots[slot].weight = 0;
	g->slots[slot].cookie = 0;
	g->members[slot].cookie = 0;
}

/* Every address has a group of its own, with its own copy of the program. */
int group_open(struct guard *guard, const struct listener *l, struct group **group, char words[WORDS])
{
	struct group *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->guard = guard;
	g->like = *l;
	g->like.fd = -1;
	g->number = ++guard->d->numbers;
	g->hold[0] = g->hold[1] = -1;
	g->program = g->socks = g->group_fd = g->slots_fd = g->counts = -1;
	r = load(g, words);
	for (int i = 0; i < 2 && !r; i++) {
		g->hold[i] = holder_open(guard->d->netns, guard->netns, l, words);
		r = g->hold[i] < 0 ? g->hold[i] : 0;
	}
	if (!r && listen(g->hold[0], BACKLOG)) {
		r = -errno;
		snprintf(words, WORDS, "the holder cannot listen: %s", strerror(-r));
	}
	if (!r && setsockopt(g->hold[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &g->program,
			     sizeof(g->program))) {
		r = -errno;
		snprintf(words, WORDS, "the program cannot be attached to the group: %s",
			 strerror(-r));
	}
	if (!r && (r = listen_as(g, 0)))
		snprintf(words, WORDS, "the holder does not go into its map: %s", strerror(-r));
	if (r) {
		group_close(g);
		return r;
	}
	g->next = guard->groups;
	guard->groups = *group = g;
	return group_watch(g);
}

/* Of a member, or with 0 one that is free. */
static int slot_of(const struct group *g, uint64_t cookie)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie == cookie)
			return i;
	return -ENOSPC;
}

/* Workers, each with a listener of its own, are of one generation with their siblings and with the
 * parent that has forked them; what starts one server after the other is another program. */
static bool is_of_newest(const struct guard *g, pid_t pid)
{
	pid_t parent = inspect_parent(pid);
	char program[sizeof(g->program)];

	if (pid == g->newest || pid == g->parent)
		return true;
	if (!parent)
		return false;
	return parent == g->newest || (parent == g->parent && !inspect_program(parent, program) &&
				       !strcmp(program, g->program));
}

int group_join(struct group *g, const struct listener *l, char words[WORDS])
{
	int slot = slot_of(g, l->cookie), r;

	if (slot < 0)
		slot = slot_of(g, 0);
	if (slot < 0) {
		snprintf(words, WORDS, "all %d places of the group are taken",
			 LISTENER_SLOTS - LISTENER_FIRST);
		return slot;
	}
	if (put(g, (uint32_t)slot, l->fd)) {
		if (errno == EBUSY && g->members[slot].cookie)
			return 0; /* it is there already, and has not stopped to listen meanwhile */
		r = -errno;
		snprintf(words, WORDS, "it is not of the holder's group: %s", strerror(-r));
		return r;
	}
	if (!is_of_newest(g->guard, l->pid))
		g->guard->generation++;
	g->guard->newest = l->pid;
	g->guard->parent = inspect_parent(l->pid);
	g->members[slot] = (struct member){ .cookie = l->cookie, .pid = l->pid, .late = !l->reuse };
	snprintf(g->members[slot].comm, COMM, "%s", l->comm);
	g->slots[slot].generation = g->guard->generation;
	g->slots[slot].cookie = l->cookie;
	g->slots[slot].room = SOME_ROOM;
	__atomic_store_n(&g->slots[slot].weight, 1, __ATOMIC_RELEASE);
	g->view->working = g->guard->generation;
	g->view->open = 1;
	return 0;
}

static void on_queue(const struct queue *q, void *data)
{
	struct group *g = data;

	if (q->cookie == g->hold_cookie[g->active])
		g->held = q->queued;
	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		struct member *m = &g->members[i];

		if (m->cookie != q->cookie)
			continue;
		m->seen = true;
		m->queued = q->queued;
		m->backlog = q->backlog;
		/* the kernel takes one more than the backlog */
		__atomic_store_n(&g->slots[i].room, (int32_t)(q->backlog + 1 - q->queued),
				 __ATOMIC_RELAXED);
	}
}

static bool all_seen(const struct group *g)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && !g->members[i].seen)
			return false;
	return true;
}

/* A dump that goes on in a second message may leave one out: who is not seen is asked for again,
 * since nothing brings back who is forgotten. */
void group_refresh(struct group *g)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		g->members[i].seen = false;
	for (int n = 0; n < 2 && (!n || !all_seen(g)); n++)
		if (queues_read(g->guard->diag, g->guard->at.port, on_queue, g))
			return; /* no answer is no "no" */
	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && !g->members[i].seen)
			forget(g, i);
}

unsigned int group_members(const struct group *g)
{
	unsigned int n = 0;

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		n += g->members[i].cookie != 0;
	return n;
}

static int32_t room_of(const struct group *g)
{
	int32_t room = 0;

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && g->slots[i].room > 0)
			room += g->slots[i].room;
	return room;
}

static int on_again(sd_event_source *s, uint64_t usec, void *data)
{
	(void)s, (void)usec;
	group_hand_over(data);
	return 0;
}

static void look_again(struct group *g)
{
	if (!g->again)
		sd_event_add_time_relative(g->guard->d->event, &g->again, CLOCK_MONOTONIC,
					   AGAIN_US, 1000, on_again, g);
	else if (!sd_event_source_set_time_relative(g->again, AGAIN_US))
		sd_event_source_set_enabled(g->again, SD_EVENT_ONESHOT);
}

/* A server whose queue is full gets what fits; the rest stays, and is looked at again. */
void group_hand_over(struct group *g)
{
	unsigned int old = g->active;

	group_refresh(g);
	sd_event_source_set_enabled(g->waiting[old], SD_EVENT_OFF);
	if (!group_members(g))
		return;
	if (!g->held) {
		sd_event_source_set_enabled(g->waiting[old], SD_EVENT_ONESHOT);
		return;
	}
	if (room_of(g) > 0) {
		int r = listen_as(g, 1 - old);

		if (r)
			log_error("the other holder of port %u cannot listen: %s",
				  g->guard->at.port, strerror(-r));
		else
			shutdown(g->hold[old], SHUT_RDWR);
	}
	group_refresh(g);
	if (g->held)
		look_again(g);
	else
		sd_event_source_set_enabled(g->waiting[g->active], SD_EVENT_ONESHOT);
}

static int on_held(sd_event_source *s, int fd, uint32_t events, void *data)
{
	(void)s, (void)fd, (void)events;
	group_hand_over(data);
	return 0;
}

int group_watch(struct group *g)
{
	socklen_t size = sizeof(uint64_t);

	for (int i = 0; i < 2; i++) {
		int r = getsockopt(g->hold[i], SOL_SOCKET, SO_COOKIE, &g->hold_cookie[i], &size);

		r = r ? -errno : sd_event_add_io(g->guard->d->event, &g->waiting[i], g->hold[i],
					1 /* EPOLLIN */, on_held, g);

		if (r < 0)
			return r;
		sd_event_source_set_enabled(g->waiting[i], SD_EVENT_OFF);
	}
	return 0;
}

void group_count(const struct group *g, uint64_t counts[LISTENER_COUNT])
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t values[cpus > 0 ? cpus : 1];

	memset(counts, 0, LISTENER_COUNT * sizeof(*counts));
	for (uint32_t i = 0; i < LISTENER_COUNT; i++)
		if (!bpf_map_lookup_elem(g->counts, &i, values))
			for (int c = 0; c < cpus; c++)
				counts[i] += values[c];
}

/* The server is left as it was: without the program, without what we have set. */
static int let_go(struct listener *l, void *data)
{
	struct group *g = data;
	int zero = 0;

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		if (g->members[i].cookie != l->cookie)
			continue;
		setsockopt(l->fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &zero, sizeof(zero));
		if (g->members[i].late)
			setsockopt(l->fd, SOL_SOCKET, SO_REUSEPORT, &zero, sizeof(zero));
	}
	return 0;
}

void group_close(struct group *g)
{
	if (g->view && g->hold[g->active] >= 0) {
		for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
			g->slots[i].room = INT32_MAX; /* all of it goes, whatever the backlog */
		shutdown(g->hold[g->active], SHUT_RDWR);
		for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
			if (g->members[i].cookie)
				inspect(g->members[i].pid, g->guard->at.port, let_go, g);
	}
	for (int i = 0; i < 2; i++) {
		sd_event_source_disable_unref(g->waiting[i]);
		close_fd(&g->hold[i]);
	}
	sd_event_source_disable_unref(g->again);
	if (g->view)
		munmap(g->view, 4096);
	if (g->slots)
		munmap(g->slots, 4096);
	close_fd(&g->program);
	close_fd(&g->socks);
	close_fd(&g->group_fd);
	close_fd(&g->slots_fd);
	close_fd(&g->counts);
	free(g);
}
