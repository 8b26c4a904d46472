// SPDX-License-Identifier: BSD-2-Clause
/* Guards: who may join, and what becomes of who may not; see guard.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "guard/guard.h"
#include "guard/store.h"

struct guard *guard_find(struct daemon *d, const struct listener_port *at)
{
	for (struct guard *g = d->guards; g; g = g->next)
		if (g->at.netns == at->netns && g->at.port == at->port)
			return g;
	return NULL;
}

struct guard *guard_add(struct daemon *d, const struct listener_port *at, int netns, bool learn)
{
	struct guard *g = guard_find(d, at);

	if (g) {
		close(netns);
		return g;
	}
	g = calloc(1, sizeof(*g));
	if (!g || arrive_set(d, at, learn)) {
		close(netns);
		free(g);
		return NULL;
	}
	*g = (struct guard){ .d = d, .at = *at, .netns = netns, .next = d->guards };
	g->diag = queues_open(d->netns, netns);
	d->guards = g;
	store_guard(g);
	return g;
}

static void note(struct guard *g, const struct listener *l, const char *why)
{
	struct stranger *s = NULL;
	char text[LISTENER_TEXT];

	for (unsigned int i = 0; i < g->n_strangers && !s; i++)
		if (g->strangers[i].cookie == l->cookie)
			s = &g->strangers[i];
	if (!s && g->n_strangers == STRANGERS) {
		memmove(g->strangers, g->strangers + 1, sizeof(*s) * --g->n_strangers);
		s = &g->strangers[g->n_strangers++];
	} else if (!s) {
		s = &g->strangers[g->n_strangers++];
	}
	*s = (struct stranger){ .pid = l->pid, .cookie = l->cookie };
	snprintf(s->comm, sizeof(s->comm), "%s", l->comm);
	snprintf(s->address, sizeof(s->address), "%s", listener_text(l, text));
	snprintf(s->why, sizeof(s->why), "%s", why);
	log_warning("%s (pid %d) listens on %s and is given nothing: %s", l->comm, l->pid,
		    s->address, why);
}

static void on_stranger(const struct queue *q, void *data)
{
	struct guard *g = data;

	for (unsigned int i = 0; i < g->n_strangers; i++)
		g->strangers[i].seen |= g->strangers[i].cookie == q->cookie;
}

void guard_refresh_strangers(struct guard *g)
{
	for (unsigned int i = 0; i < g->n_strangers; i++)
		g->strangers[i].seen = false;
	if (!g->n_strangers || queues_read(g->diag, g->at.port, on_stranger, g))
		return;
	for (unsigned int i = 0; i < g->n_strangers;)
		if (g->strangers[i].seen)
			i++;
		else
			g->strangers[i] = g->strangers[--g->n_strangers];
}

static void forget_stranger(struct guard *g, const struct listener *l)
{
	for (unsigned int i = 0; i < g->n_strangers; i++)
		if (g->strangers[i].cookie == l->cookie) {
			g->strangers[i] = g->strangers[--g->n_strangers];
			return;
		}
}

static struct group *find_group(struct guard *g, const struct listener *l)
{
	for (struct group *group = g->groups; group; group = group->next)
		if (listener_same(&group->like, l))
			return group;
	return NULL;
}

/* Why a listener that is of no group may not found one: somebody is held for another address. */
static bool is_elsewhere(struct guard *g, const struct listener *l, char words[WORDS])
{
	char one[LISTENER_TEXT], other[LISTENER_TEXT];

	for (struct group *group = g->groups; group; group = group->next) {
		if (group->like.addr.ss_family != l->addr.ss_family)
			continue;
		group_refresh(group);
		if (group_members(group) || !group_held(group))
			continue;
		if (group->like.uid != l->uid)
			snprintf(words, WORDS,
				 "it belongs to uid %u, and those held here to uid %u: the kernel "
				 "lets no connection pass from one to the other",
				 l->uid, group->like.uid);
		else
			snprintf(words, WORDS,
				 "it listens on %s, and %u connections are held on %s: they cannot "
				 "pass. They are kept for a server that listens there",
				 listener_text(l, one), group_held(group),
				 listener_text(&group->like, other));
		return true;
	}
	return false;
}

static void remove_group(struct group *group)
{
	for (struct group **at = &group->guard->groups; *at; at = &(*at)->next)
		if (*at == group) {
			*at = group->next;
			break;
		}
	store_state(group->guard->d);
	store_drop_group(group);
	group_close(group);
}

/* A group whose server cannot join is taken away again: its holder would have all that comes. */
static int found_group(struct guard *g, const struct listener *l, char words[WORDS])
{
	pid_t other = scan_agent(g->d, l);
	struct group *group;
	int r;

	if (other) { /* of two programs at a group the kernel asks the one that came last */
		snprintf(words, WORDS, "another ferry-guard (pid %d) guards it: 'ferry guard off' with the "
				       "same --socket ends that", other);
		return -EBUSY;
	}
	if (!store_has_room(g->d, GROUP_FDS + 2, words))
		return -ENOSPC;
	arrive_set(g->d, &g->at, false); /* or its holder would be stopped, too */
	r = group_open(g, l, &group, words);
	if (r)
		return r;
	r = group_join(group, l, words);
	if (r)
		remove_group(group);
	else
		store_group(group);
	return r;
}

int guard_take(struct guard *g, const struct listener *l, char words[WORDS])
{
	struct group *group = find_group(g, l);
	char text[LISTENER_TEXT];
	int one = 1, zero = 0, r;

	if (l->netns != g->at.netns) {
		snprintf(words, WORDS, "its socket is of another network namespace than its process");
		return -EXDEV;
	}
	if (inspect_is_kept(l)) {
		snprintf(words, WORDS, "systemd has its socket, too (a .socket unit): that stays open when the "
				       "server ends, and nobody is lost. It needs no guard");
		return -EALREADY;
	}
	if (!group && is_elsewhere(g, l, words))
		return -EADDRNOTAVAIL;
	/* also where it is set: that waits for the end of a listen() that is under way, before which the
	 * socket is in no group */
	if (setsockopt(l->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one))) {
		snprintf(words, WORDS, "SO_REUSEPORT cannot be set: %s", strerror(errno));
		return -errno;
	}
	r = group ? group_join(group, l, words) : found_group(g, l, words);
	if (r) {
		if (!l->reuse)
			setsockopt(l->fd, SOL_SOCKET, SO_REUSEPORT, &zero, sizeof(zero));
		return r;
	}
	group = find_group(g, l);
	forget_stranger(g, l);
	log_info("%s is guarded: %u listeners, generation %u", listener_text(&group->like, text),
		 group_members(group), g->generation);
	group_hand_over(group);
	return 0;
}

int guard_register(struct guard *g, const struct listener *l, char words[WORDS])
{
	int r = guard_take(g, l, words);

	return r ? r : inspect_program(l->pid, find_group(g, l)->registered);
}

const char *guard_program(const struct guard *g, const struct group *group)
{
	return group && group->registered[0] ? group->registered : g->program;
}

static bool may_join(struct guard *g, const struct listener *l, char words[WORDS])
{
	char program[PATH];
	const char *wanted = guard_program(g, find_group(g, l));
	int r = inspect_program(l->pid, program);

	if (r) {
		snprintf(words, WORDS, "its program cannot be seen: %s", strerror(-r));
		return false;
	}
	if (!g->program[0])
		memcpy(g->program, program, sizeof(program));
	if (strcmp(wanted, program)) {
		snprintf(words, WORDS, "nobody has registered it: %.80s is guarded here, it is %.80s",
			 wanted, program);
		return false;
	}
	return true;
}

static int on_found(struct listener *l, void *data)
{
	struct guard *g = data;
	char words[WORDS] = "";

	if (!may_join(g, l, words) || guard_take(g, l, words))
		note(g, l, words);
	return 0;
}

void guard_meet(struct guard *g, pid_t pid)
{
	inspect(pid, g->at.port, on_found, g);
	store_state(g->d);
}

static bool is_member(const struct group *group, uint64_t cookie)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (group->members[i].cookie == cookie)
			return true;
	return false;
}

static int on_sibling(struct listener *l, void *data)
{
	struct group *group = find_group(data, l);

	return group && !is_member(group, l->cookie) ? on_found(l, data) : 0;
}

/* Of its listeners some may join. */
static bool is_program(const struct guard *g, const char *program)
{
	for (const struct group *group = g->groups; group; group = group->next)
		if (!strcmp(guard_program(g, group), program))
			return true;
	return false;
}

struct siblings {
	struct guard *guard;
	bool beside;
};

static void on_process(pid_t pid, void *data)
{
	const struct siblings *s = data;
	char program[PATH];

	if (inspect_program(pid, program) || !is_program(s->guard, program))
		return;
	if (s->beside)
		s->guard->newest = pid; /* one generation, whoever has forked them */
	inspect(pid, s->guard->at.port, on_sibling, s->guard);
}

void guard_meet_siblings(struct guard *g, bool beside)
{
	struct siblings s = { g, beside };

	scan_each(g, on_process, &s);
}

void guard_meet_again(struct guard *g)
{
	if (g->left && g->n_strangers) {
		guard_meet_siblings(g, false);
		store_state(g->d);
	}
	g->left = false;
}

void guard_refresh(struct guard *g)
{
	for (struct group *group = g->groups; group; group = group->next)
		group_hand_over(group);
}

void guard_remove(struct guard *g)
{
	arrive_clear(g->d, &g->at);
	for (struct guard **at = &g->d->guards; *at; at = &(*at)->next)
		if (*at == g) {
			*at = g->next;
			break;
		}
	while (g->groups)
		remove_group(g->groups);
	store_state(g->d);
	store_drop_guard(g);
	close_fd(&g->diag);
	close(g->netns);
	free(g);
}
