// SPDX-License-Identifier: BSD-2-Clause
/*
 * One group: the program that chooses, and who may be given what; see guard.h. What is held is in
 * hold.c.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "guard/guard.h"
#include "listener.skel.h"

#define SOME_ROOM 1
#define FREED_MS 500
#define FREED_STEP_MS 5

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

/* What its slot says stays: it may be giving away its queue still, and the kernel shows it as a listener
 * no more before it begins to. */
static void forget(struct group *g, uint32_t slot)
{
	g->slots[slot].weight = 0;
	g->members[slot].cookie = 0;
	g->guard->left = true;
}

static int put(struct group *g, uint32_t slot, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(g->socks, &slot, &value, BPF_ANY);
}

static struct group *new_group(struct guard *guard, const struct listener *l)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->guard = guard;
	g->like = *l;
	g->like.fd = -1;
	g->number = ++guard->d->numbers;
	g->program = g->socks = g->group_fd = g->slots_fd = g->counts = -1;
	for (uint32_t i = 0; i < LISTENER_KINDS; i++)
		g->hold[i] = (struct hold){ .group = g, .kind = i, .fd = { -1, -1 } };
	return g;
}

/* Every address has a group of its own, with its own copy of the program. */
int group_open(struct guard *guard, const struct listener *l, struct group **group, char words[WORDS])
{
	struct group *g = new_group(guard, l);
	int r;

	if (!g)
		return -ENOMEM;
	witness_begin(g);
	r = load(g, words);
	if (!r)
		policy_begin(g);
	r = r ? r : hold_open(&g->hold[0], l, words);
	if (!r && setsockopt(g->hold[0].fd[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &g->program,
			     sizeof(g->program))) {
		r = -errno;
		snprintf(words, WORDS, "the program cannot be attached to the group: %s",
			 strerror(-r));
	}
	if (!r && (r = hold_use(&g->hold[0], 0)))
		snprintf(words, WORDS, "the holder does not go into its map: %s", strerror(-r));
	if (r) {
		group_close(g);
		return r;
	}
	g->next = guard->groups;
	guard->groups = *group = g;
	return 0;
}

/* Nothing is held there, nobody is of its kind, nobody new comes there. */
static bool is_idle(const struct hold *h)
{
	const struct group *g = h->group;

	if (h->held || g->view->kind == h->kind)
		return false;
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && g->slots[i].kind == h->kind)
			return false;
	return true;
}

/* Of the listener's kind, which may be a new one. */
static struct hold *hold_for(struct group *g, const struct listener *l, char words[WORDS])
{
	struct hold *room = NULL;
	char differs[WORDS];

	group_refresh(g); /* or a holder could be closed that has been given something since */
	for (struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++) {
		if (hold_exists(h) && !holder_differs(l->fd, h->fd[h->active], differs))
			return h;
		if (!room && (!hold_exists(h) || is_idle(h)))
			room = h;
	}
	if (!room) {
		snprintf(words, WORDS, "there are %d other sets of options that connections are held for, or "
				       "that listeners have; it differs from the last of them in %.80s",
			 LISTENER_KINDS, differs);
		return NULL;
	}
	if (hold_exists(room)) {
		store_drop_hold(room);
		hold_close(room);
	}
	if (!store_has_room(g->guard->d, 2, words) || hold_open(room, l, words))
		return NULL;
	if (hold_use(room, 0)) {
		snprintf(words, WORDS, "a holder does not go into its map: %s", strerror(errno));
		hold_close(room);
		return NULL;
	}
	store_hold(room);
	return room;
}

/* For a listener: that which it has, or had, or one that has been free for long; see forget(). */
static int slot_for(const struct group *g, uint64_t cookie)
{
	const unsigned int n = LISTENER_SLOTS - LISTENER_FIRST;
	int slot = -ENOSPC;

	for (unsigned int i = 0; i < n; i++) {
		int at = LISTENER_FIRST + (int)((g->latest + i) % n);

		if (g->slots[at].cookie == cookie)
			return at;
		if (slot < 0 && !g->members[at].cookie)
			slot = at;
	}
	return slot;
}

/* Where the listener is in the array, which outlives an agent; -ENOENT: it is in none, or another. */
static int slot_in_array(const struct group *g, uint64_t cookie)
{
	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		uint64_t there;

		if (!bpf_map_lookup_elem(g->socks, &i, &there) && there == cookie)
			return (int)i;
	}
	return -ENOENT;
}

/* Into the array. The slot, that where it is *there already, or -errno. What an agent that is no
 * more has had it in the kernel frees a moment after our program has taken the place of that one's. */
static int enter(struct group *g, int slot, const struct listener *l, bool *there)
{
	*there = false;
	for (int ms = 0;; ms += FREED_STEP_MS) {
		int at;

		if (!put(g, (uint32_t)slot, l->fd))
			return slot;
		if (errno != EBUSY)
			return -errno;
		at = slot_in_array(g, l->cookie);
		*there = at >= 0;
		if (*there || g->view->open || ms >= FREED_MS)
			return *there ? at : -EBUSY;
		poll(NULL, 0, FREED_STEP_MS);
	}
}

/* Nobody of that generation, or of a later one, has been here. */
static bool is_first_of(const struct group *g, uint32_t generation)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->slots[i].generation >= generation)
			return false;
	return true;
}

/* In the array, with a weight, and its generation. One that has been here may have been told to wait. */
static void admit(struct group *g, int slot, const struct listener *l, uint32_t kind)
{
	struct guard *guard = g->guard;
	uint32_t generation = policy_generation_of(guard, l->pid);
	bool takes = !guard->wait && is_first_of(g, generation);
	/* one that listens again has SO_REUSEPORT since the first time */
	bool late = !l->reuse || (g->slots[slot].cookie == l->cookie && g->members[slot].late);

	g->members[slot] = (struct member){ .cookie = l->cookie, .pid = l->pid, .late = late };
	snprintf(g->members[slot].comm, COMM, "%s", l->comm);
	g->latest = (unsigned int)(slot - LISTENER_FIRST) + 1;
	g->slots[slot].generation = generation;
	g->slots[slot].cookie = l->cookie;
	g->slots[slot].room = g->members[slot].room = SOME_ROOM;
	g->slots[slot].kind = kind;
	__atomic_store_n(&g->slots[slot].weight, 1, __ATOMIC_RELEASE);
	if (takes)
		g->view->working = generation;
	if (g->view->working == generation)
		g->view->kind = kind;
	policy_succeed(g);
	g->view->open = 1;
}

int group_join(struct group *g, const struct listener *l, char words[WORDS])
{
	int slot = slot_for(g, l->cookie);
	struct hold *h;
	bool there;

	if (slot < 0) {
		snprintf(words, WORDS, "all %d places of the group are taken",
			 LISTENER_SLOTS - LISTENER_FIRST);
		return slot;
	}
	h = hold_for(g, l, words);
	if (!h)
		return -ENOSPC;
	slot = enter(g, slot, l, &there);
	if (slot < 0) {
		snprintf(words, WORDS, "it is not of the holder's group: %s", strerror(-slot));
		return slot;
	}
	/* a member that is there has not stopped to listen meanwhile. One that is none has been put there by
	 * an agent that died before it wrote that down */
	if (there && g->members[slot].cookie)
		return 0;
	if (g->guard->d->forgets)
		wake_make_room(l);
	admit(g, slot, l, h->kind);
	return 0;
}

static void on_queue(const struct queue *q, void *data)
{
	struct group *g = data;

	for (struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		if (q->cookie == h->cookie[h->active])
			h->held = q->queued;
	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		struct member *m = &g->members[i];
		/* the kernel takes one more than the backlog; it may be needed to wake who waits */
		int64_t left = (int64_t)q->backlog + !g->guard->d->forgets - q->queued;
		int32_t room = left > INT32_MAX ? INT32_MAX : (int32_t)left;

		if (m->cookie != q->cookie)
			continue;
		m->seen = true;
		m->queued = q->queued;
		m->backlog = q->backlog;
		/* the program takes what it gives from the room */
		m->asleep |= __atomic_exchange_n(&g->slots[i].room, room, __ATOMIC_RELAXED) != m->room;
		m->room = room;
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
	policy_succeed(g);
}

unsigned int group_members(const struct group *g)
{
	unsigned int n = 0;

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		n += g->members[i].cookie != 0;
	return n;
}

uint32_t group_held(const struct group *g)
{
	uint32_t n = 0;

	for (const struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		n += h->held;
	return n;
}

void group_hand_over(struct group *g)
{
	group_refresh(g);
	for (struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		if (hold_exists(h))
			hold_hand_over(h);
	wake_all(g);
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
static void let_go(struct group *g, uint32_t slot, const struct listener *l)
{
	int zero = 0;

	setsockopt(l->fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &zero, sizeof(zero));
	if (g->members[slot].late)
		setsockopt(l->fd, SOL_SOCKET, SO_REUSEPORT, &zero, sizeof(zero));
}

void group_close(struct group *g)
{
	struct account before = witness_account(g);

	if (g->view) {
		for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
			if (g->members[i].cookie) { /* all of it goes, whatever the backlog */
				g->slots[i].room = INT32_MAX;
				g->slots[i].weight = g->slots[i].weight ? g->slots[i].weight : 1;
			}
		g->view->mixed = 1;
		g->view->waits = 0;
	}
	for (struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		if (hold_exists(h))
			shutdown(h->fd[h->active], SHUT_RDWR);
	wake_at_end(g);
	scan_members(g, let_go);
	for (struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		hold_close(h);
	witness_end(g, &before);
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
