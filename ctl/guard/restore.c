// SPDX-License-Identifier: BSD-2-Clause
/*
 * What an earlier agent has left is taken back: descriptors by their names, and the state, of which one
 * copy is whole. What is not whole is given up alone; see store.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include "base/log.h"
#include "guard/guard.h"
#include "guard/store.h"

static void restore_numbers(const json_t *rows, void *values, size_t n)
{
	uint64_t *v = values;

	for (size_t i = 0; i < n; i++)
		v[i] = (uint64_t)json_integer_value(json_array_get(rows, i));
}

/* One of the two; NULL where it is not whole. */
static json_t *read_one(int which)
{
	_cleanup_free_ char *text = calloc(1, STATE_MAX + 1);
	json_t *o = NULL, *first;

	if (text && pread(store.fd, text, STATE_MAX, (off_t)which * STATE_MAX) > 0)
		o = json_loads(text, 0, NULL);
	first = json_object_get(o, "turn");
	if (!first || json_integer_value(first) != json_integer_value(json_object_get(o, "end"))) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static uint64_t turn_of(const json_t *state)
{
	return (uint64_t)json_integer_value(json_object_get(state, "turn"));
}

static json_t *read_state(void)
{
	json_t *one = read_one(0), *other = read_one(1);
	bool first = turn_of(one) > turn_of(other);

	json_decref(first ? other : one);
	return first ? one : other;
}

static char **names;
static int given;

/* A descriptor of that name, once. */
static int take(const char *name)
{
	for (int i = 0; i < given; i++)
		if (names[i] && !strcmp(names[i], name)) {
			names[i][0] = 0;
			fcntl(SD_LISTEN_FDS_START + i, F_SETFD, FD_CLOEXEC);
			return SD_LISTEN_FDS_START + i;
		}
	return -1;
}

static void take_one(const char *name, int *fd)
{
	*fd = take(name);
}

static const char *words_of(const json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	return text ? text : "";
}

static void restore_member(struct group *g, const json_t *row)
{
	json_int_t slot = json_integer_value(json_object_get(row, "slot"));
	struct member *m;

	if (slot < LISTENER_FIRST || slot >= LISTENER_SLOTS)
		return;
	m = &g->members[slot];
	m->cookie = (uint64_t)json_integer_value(json_object_get(row, "cookie"));
	m->pid = (pid_t)json_integer_value(json_object_get(row, "pid"));
	m->late = json_is_true(json_object_get(row, "late"));
	m->asleep = true; /* an earlier agent may not have come to wake it */
	snprintf(m->comm, COMM, "%s", words_of(row, "comm"));
}

/* The address and user of the holders. */
static int restore_like(struct group *g)
{
	for (const struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++)
		if (hold_exists(h))
			return inspect_fd(h->fd[h->active], 0, &g->like);
	return -ENOENT;
}

/* Of one that is not whole, the agent has died while it was opened or closed: nobody is held there. */
static void restore_hold(struct hold *h)
{
	if ((h->fd[0] < 0 && h->fd[1] < 0) ||
	    (h->fd[0] >= 0 && h->fd[1] >= 0 && !hold_restore(h)))
		return;
	store_drop_hold(h);
	hold_close(h);
}

/* Of a group that cannot be restored: its servers are met anew, see main.c. */
static void abandon(struct group *g, int r)
{
	log_error("what an earlier agent has left of port %u cannot be used: %s", g->guard->at.port,
		  strerror(-r));
	memset(g->before, 0, sizeof(g->before)); /* nor has it an account */
	memset(g->counted, 0, sizeof(g->counted));
	g->guard->groups = g->next;
	store_drop_group(g);
	group_close(g);
}

static void restore_group(struct guard *guard, const json_t *row)
{
	struct group *g = calloc(1, sizeof(*g));
	json_t *member;
	size_t i;
	int r;

	if (!g)
		return;
	g->guard = guard;
	g->number = (unsigned int)json_integer_value(json_object_get(row, "number"));
	for (i = 0; i < LISTENER_KINDS; i++)
		g->hold[i] = (struct hold){ .group = g, .kind = (uint32_t)i };
	snprintf(g->registered, sizeof(g->registered), "%s", words_of(row, "program"));
	store_each(g, take_one);
	g->next = guard->groups;
	guard->groups = g;
	restore_numbers(json_object_get(row, "before"), g->before, WITNESS_COUNT);
	restore_numbers(json_object_get(row, "counted"), g->counted, LISTENER_COUNT);
	r = g->program < 0 || g->socks < 0 || g->counts < 0 ? -EBADF : group_map(g);
	for (i = 0; i < LISTENER_KINDS && !r; i++)
		restore_hold(&g->hold[i]);
	if (!r)
		r = restore_like(g);
	if (r) {
		abandon(g, r);
		return;
	}
	json_array_foreach(json_object_get(row, "members"), i, member)
		restore_member(g, member);
	for (i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (!g->members[i].cookie)
			g->slots[i].weight = 0;
}

static void restore_guard(struct daemon *d, const json_t *row)
{
	struct listener_port at = {
		.netns = (uint64_t)json_integer_value(json_object_get(row, "netns")),
		.port = (uint32_t)json_integer_value(json_object_get(row, "port")),
	};
	struct guard *g = calloc(1, sizeof(*g));
	char name[STORE_NAME];
	json_t *group;
	size_t i;

	if (!g)
		return;
	*g = (struct guard){ .d = d, .at = at, .next = d->guards };
	g->netns = take(store_netns_name(g, name));
	if (g->netns < 0) {
		log_error("port %u is guarded no more: its network namespace was not kept", at.port);
		arrive_clear(d, &at);
		free(g);
		return;
	}
	d->guards = g;
	g->diag = queues_open(d->netns, g->netns);
	g->generation = (uint32_t)json_integer_value(json_object_get(row, "generation"));
	g->newest = (pid_t)json_integer_value(json_object_get(row, "newest"));
	g->parent = (pid_t)json_integer_value(json_object_get(row, "parent"));
	g->wait = json_is_true(json_object_get(row, "wait"));
	g->mixed = json_is_true(json_object_get(row, "mixed"));
	snprintf(g->program, sizeof(g->program), "%s", words_of(row, "program"));
	json_array_foreach(json_object_get(row, "groups"), i, group)
		restore_group(g, group);
}

static void give_up_the_rest(void)
{
	for (int i = 0; i < given; i++)
		if (names[i] && names[i][0]) {
			store_drop(names[i]);
			close(SD_LISTEN_FDS_START + i);
		}
}

int store_restore(struct daemon *d)
{
	json_t *all, *row;
	size_t i;

	given = sd_listen_fds_with_names(1, &names);
	if (given <= 0)
		return given;
	store_each_own(d, take_one);
	if (store.fd < 0)
		return 0; /* whatever it is that somebody has handed to us */
	all = read_state();
	if (!all)
		return -EBADMSG;
	if (json_integer_value(json_object_get(all, "layout")) != STATE_LAYOUT) {
		json_decref(all);
		return -EPROTO;
	}
	d->forgets = json_is_true(json_object_get(all, "forgets"));
	d->numbers = (unsigned int)json_integer_value(json_object_get(all, "numbers"));
	json_array_foreach(json_object_get(all, "guards"), i, row)
		restore_guard(d, row);
	store.turn = turn_of(all);
	json_decref(all);
	give_up_the_rest();
	witness_restore(d);
	return 1;
}
