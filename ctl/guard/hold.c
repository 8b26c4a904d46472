// SPDX-License-Identifier: BSD-2-Clause
/* What is held, and when it is given to whom; see guard.h. */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "guard/guard.h"

#define BACKLOG 65535 /* the kernel cuts it to somaxconn */
#define AGAIN_US 20000

static uint32_t slot_of(const struct hold *h, unsigned int which)
{
	return 2 * h->kind + which;
}

bool hold_exists(const struct hold *h)
{
	return h->fd[0] >= 0;
}

static void on(sd_event_source *s)
{
	sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static void off(sd_event_source *s)
{
	sd_event_source_set_enabled(s, SD_EVENT_OFF);
}

static int on_held(sd_event_source *s, int fd, uint32_t events, void *data)
{
	struct hold *h = data;

	(void)s, (void)fd, (void)events;
	group_hand_over(h->group);
	return 0;
}

static int on_again(sd_event_source *s, uint64_t usec, void *data)
{
	struct hold *h = data;

	(void)s, (void)usec;
	group_hand_over(h->group);
	return 0;
}

static int watch(struct hold *h)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct listener_slot *slot = &h->group->slots[slot_of(h, i)];
		socklen_t size = sizeof(uint64_t);
		int r = getsockopt(h->fd[i], SOL_SOCKET, SO_COOKIE, &h->cookie[i], &size);

		r = r ? -errno : sd_event_add_io(h->group->guard->d->event, &h->waiting[i], h->fd[i],
						 1 /* EPOLLIN */, on_held, h);
		if (r < 0)
			return r;
		off(h->waiting[i]);
		slot->kind = h->kind;
		slot->cookie = h->cookie[i];
	}
	return 0;
}

int hold_open(struct hold *h, const struct listener *l, char words[WORDS])
{
	const struct guard *g = h->group->guard;
	int r = 0;

	for (int i = 0; i < 2 && !r; i++) {
		h->fd[i] = holder_open(g->d->netns, g->netns, l, words);
		r = h->fd[i] < 0 ? h->fd[i] : 0;
	}
	if (!r && ((r = watch(h)) || listen(h->fd[0], BACKLOG))) {
		r = r ? r : -errno;
		snprintf(words, WORDS, "the holder cannot listen: %s", strerror(-r));
	}
	if (r)
		hold_close(h);
	return r;
}

int hold_use(struct hold *h, unsigned int which)
{
	uint32_t slot = slot_of(h, which);
	uint64_t value = (uint64_t)h->fd[which];

	if (listen(h->fd[which], BACKLOG) ||
	    bpf_map_update_elem(h->group->socks, &slot, &value, BPF_ANY))
		return -errno;
	__atomic_store_n(&h->group->view->hold[h->kind], slot, __ATOMIC_RELEASE);
	h->active = which;
	return 0;
}

int hold_restore(struct hold *h)
{
	struct listener idle;

	h->active = h->group->view->hold[h->kind] % 2;
	/* the hand-over that an agent died in. One that does not listen would stay shut down, and with it
	 * every connection that it is given later */
	if (!inspect_fd(h->fd[1 - h->active], 0, &idle))
		shutdown(h->fd[1 - h->active], SHUT_RDWR);
	return watch(h);
}

static bool is_taker(const struct hold *h, int slot)
{
	const struct group *g = h->group;

	return g->members[slot].cookie && (g->view->mixed || g->slots[slot].kind == h->kind) &&
	       (!g->view->waits || g->slots[slot].generation == g->view->working);
}

static bool has_takers(const struct hold *h)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (is_taker(h, i))
			return true;
	return false;
}

static bool has_room(const struct hold *h)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (is_taker(h, i) && h->group->slots[i].weight && h->group->slots[i].room > 0)
			return true;
	return false;
}

static void look_again(struct hold *h)
{
	if (!h->again)
		sd_event_add_time_relative(h->group->guard->d->event, &h->again, CLOCK_MONOTONIC,
					   AGAIN_US, 1000, on_again, h);
	else if (!sd_event_source_set_time_relative(h->again, AGAIN_US))
		on(h->again);
}

/* A server whose queue is full gets what fits; the rest stays, and is looked at again. */
void hold_hand_over(struct hold *h)
{
	unsigned int old = h->active;
	int r = 0;

	off(h->waiting[old]);
	if (!has_takers(h))
		return;
	if (h->held && has_room(h)) {
		r = hold_use(h, 1 - old);
		if (r)
			log_error("the other holder of port %u cannot listen: %s",
				  h->group->guard->at.port, strerror(-r));
		else
			shutdown(h->fd[old], SHUT_RDWR);
		group_refresh(h->group);
	}
	if (h->held)
		look_again(h);
	else
		on(h->waiting[h->active]);
}

void hold_close(struct hold *h)
{
	if (hold_exists(h))
		shutdown(h->fd[h->active], SHUT_RDWR);
	for (unsigned int i = 0; i < 2; i++) {
		h->waiting[i] = sd_event_source_disable_unref(h->waiting[i]);
		close_fd(&h->fd[i]);
		h->cookie[i] = 0;
		if (h->group->slots)
			h->group->slots[slot_of(h, i)].cookie = 0;
	}
	h->again = sd_event_source_disable_unref(h->again);
	h->held = 0;
}
