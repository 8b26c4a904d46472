// SPDX-License-Identifier: BSD-2-Clause
/*
 * Descriptors that outlive the agent, in systemd's way (FDSTORE=1, sd_listen_fds_with_names(3)): the
 * service manager has them, or a keeper that speaks as it does. What is not in a descriptor is in
 * "state", a memfd with two JSON objects, of which one is whole at any time: an agent may be killed
 * while it writes. What the state names has been given away before, and is taken back afterwards; what
 * the next agent is handed and finds in no state is nobody's, and given up. See guard.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include "base/log.h"
#include "guard/guard.h"

#define STATE_MAX 0x100000 /* octets of one of the two */
#define STATE_LAYOUT 2 /* of what is in it, and in the maps of include/ferry/listener.h */

static int state_fd = -1;
static uint64_t turn; /* of the state written last; odd ones are the second */

void store_put(const char *name, int fd)
{
	char text[128];

	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
	sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

void store_drop(const char *name)
{
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}

static void each_of_hold(struct hold *h, void (*call)(const char *name, int *fd))
{
	for (int i = 0; i < 2; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%u-hold%u%d", h->group->number, h->kind, i);
		call(name, &h->fd[i]);
	}
}

/* The descriptors of a group by the names that they have there. */
static void each(struct group *g, void (*call)(const char *name, int *fd))
{
	const struct {
		const char *name;
		int *fd;
	} rows[] = {
		{ "program", &g->program }, { "socks", &g->socks },   { "group", &g->group_fd },
		{ "slots", &g->slots_fd },  { "counts", &g->counts },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%u-%s", g->number, rows[i].name);
		call(name, rows[i].fd);
	}
	for (unsigned int i = 0; i < LISTENER_KINDS; i++)
		each_of_hold(&g->hold[i], call);
}

static void put_one(const char *name, int *fd)
{
	store_put(name, *fd);
}

static void drop_one(const char *name, int *fd)
{
	(void)fd;
	store_drop(name);
}

void store_group(struct group *g)
{
	each(g, put_one);
	store_state(g->guard->d);
}

void store_drop_group(struct group *g)
{
	each(g, drop_one);
}

void store_hold(struct hold *h)
{
	each_of_hold(h, put_one);
}

void store_drop_hold(struct hold *h)
{
	each_of_hold(h, drop_one);
}

/* Numbers, and back. */
static json_t *numbers(const void *values, size_t n)
{
	const uint64_t *v = values;
	json_t *rows = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(rows, json_integer((json_int_t)v[i]));
	return rows;
}

static void restore_numbers(const json_t *rows, void *values, size_t n)
{
	uint64_t *v = values;

	for (size_t i = 0; i < n; i++)
		v[i] = (uint64_t)json_integer_value(json_array_get(rows, i));
}

static json_t *group_state(const struct group *g)
{
	json_t *pids = json_array();

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie)
			json_array_append_new(
				pids, json_pack("{s:i,s:s,s:i,s:I,s:b}", "slot", i, "comm",
						g->members[i].comm, "pid",
						(int)g->members[i].pid, "cookie",
						(json_int_t)g->members[i].cookie, "late",
						g->members[i].late));
	return json_pack("{s:i,s:s,s:o,s:o,s:o}", "number", (int)g->number, "program", g->registered, "members", pids, "before",
			 numbers(g->before, WITNESS_COUNT), "counted",
			 numbers(g->counted, LISTENER_COUNT));
}

static const char *netns_name(const struct guard *g, char name[64])
{
	snprintf(name, 64, "netns-%llu-%u", (unsigned long long)g->at.netns, g->at.port);
	return name;
}

void store_guard(struct guard *g)
{
	char name[64];

	store_put(netns_name(g, name), g->netns);
	store_state(g->d);
}

void store_drop_guard(struct guard *g)
{
	char name[64];

	store_drop(netns_name(g, name));
}

static json_t *guard_state(const struct guard *g)
{
	json_t *groups = json_array();

	for (const struct group *group = g->groups; group; group = group->next)
		json_array_append_new(groups, group_state(group));
	return json_pack("{s:I,s:i,s:s,s:i,s:i,s:i,s:b,s:b,s:o}", "netns", (json_int_t)g->at.netns,
			 "port", (int)g->at.port, "program", g->program, "generation",
			 (int)g->generation, "newest", (int)g->newest, "parent", (int)g->parent,
			 "wait", g->wait, "mixed", g->mixed, "groups", groups);
}

void store_state(struct daemon *d)
{
	_cleanup_free_ char *text = NULL;
	json_t *guards = json_array(), *all;
	size_t size;

	for (const struct guard *g = d->guards; g; g = g->next)
		json_array_append_new(guards, guard_state(g));
	turn++;
	all = json_pack("{s:I,s:i,s:i,s:o,s:I}", "turn", (json_int_t)turn, "layout", STATE_LAYOUT,
			"numbers", (int)d->numbers, "guards", guards, "end", (json_int_t)turn);
	text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	size = text ? strlen(text) + 1 : 0;
	if (size > STATE_MAX ||
	    pwrite(state_fd, text, size, (off_t)(turn % 2) * STATE_MAX) != (ssize_t)size)
		log_error("the state cannot be kept: %s", strerror(errno));
}

/* One of the two; NULL where it is not whole. */
static json_t *read_one(int which)
{
	_cleanup_free_ char *text = calloc(1, STATE_MAX + 1);
	json_t *o = NULL, *first;

	if (text && pread(state_fd, text, STATE_MAX, (off_t)which * STATE_MAX) > 0)
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

int store_open(struct daemon *d)
{
	state_fd = memfd_create("ferry-guard", MFD_CLOEXEC);
	if (state_fd < 0)
		return -errno;
	store_state(d);
	return 0;
}

/* Those of the agent itself. */
static void each_own(struct daemon *d, void (*call)(const char *name, int *fd))
{
	call("state", &state_fd);
	call("command", &d->listener);
	call("ports", &d->ports);
	call("unmet", &d->unmet);
	call("events", &d->events);
	call("bind4", &d->links[0]);
	call("bind6", &d->links[1]);
	call("states", &d->links[2]);
	for (int i = 0; i < LEDGER_FD_COUNT; i++) {
		char name[64];

		snprintf(name, sizeof(name), "witness-%s", ledger_fd_names[i]);
		call(name, &d->ledger.fd[i]);
	}
}

void store_all(struct daemon *d)
{
	each_own(d, put_one);
	for (struct guard *g = d->guards; g; g = g->next) {
		store_guard(g);
		for (struct group *group = g->groups; group; group = group->next)
			store_group(group);
	}
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
	each(g, take_one);
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
	char name[64];
	json_t *group;
	size_t i;

	if (!g)
		return;
	*g = (struct guard){ .d = d, .at = at, .next = d->guards };
	g->netns = take(netns_name(g, name));
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
	each_own(d, take_one);
	if (state_fd < 0)
		return 0; /* whatever it is that somebody has handed to us */
	all = read_state();
	if (!all)
		return -EBADMSG;
	if (json_integer_value(json_object_get(all, "layout")) != STATE_LAYOUT) {
		json_decref(all);
		return -EPROTO;
	}
	d->numbers = (unsigned int)json_integer_value(json_object_get(all, "numbers"));
	json_array_foreach(json_object_get(all, "guards"), i, row)
		restore_guard(d, row);
	turn = turn_of(all);
	json_decref(all);
	give_up_the_rest();
	witness_restore(d);
	return 1;
}
