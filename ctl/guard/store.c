// SPDX-License-Identifier: BSD-2-Clause
/*
 * Descriptors that outlive the agent, in systemd's way (FDSTORE=1, sd_listen_fds_with_names(3)): the
 * service manager has them, or a keeper that speaks as it does. What is not in a descriptor is in
 * "state", a memfd with a JSON object. See guard.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include "base/log.h"
#include "guard/guard.h"

static int state_fd = -1;

void store_put(const char *name, int fd)
{
	char text[128];

	snprintf(text, sizeof(text), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
	sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

void store_drop(const char *name)
{
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}

/* The descriptors of a group by the names that they have there. */
static void each(struct group *g, void (*call)(const char *name, int *fd))
{
	const struct {
		const char *name;
		int *fd;
	} rows[] = {
		{ "hold0", &g->hold[0] },   { "hold1", &g->hold[1] },
		{ "program", &g->program }, { "socks", &g->socks },
		{ "group", &g->group_fd },  { "slots", &g->slots_fd },
		{ "counts", &g->counts },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%u-%s", g->number, rows[i].name);
		call(name, rows[i].fd);
	}
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
	return json_pack("{s:i,s:o}", "number", (int)g->number, "members", pids);
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
	char name[64];

	for (const struct group *group = g->groups; group; group = group->next)
		json_array_append_new(groups, group_state(group));
	return json_pack("{s:I,s:i,s:s,s:s,s:i,s:i,s:i,s:o}", "netns", (json_int_t)g->at.netns, "port",
			 (int)g->at.port, "in", netns_name(g, name),
			 "program", g->program, "generation",
			 (int)g->generation, "newest", (int)g->newest, "parent", (int)g->parent, "groups",
			 groups);
}

void store_state(struct daemon *d)
{
	_cleanup_free_ char *text = NULL;
	json_t *guards = json_array(), *all;
	size_t size;

	for (const struct guard *g = d->guards; g; g = g->next)
		json_array_append_new(guards, guard_state(g));
	all = json_pack("{s:i,s:o}", "numbers", (int)d->numbers, "guards", guards);
	text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	size = text ? strlen(text) : 0;
	if (state_fd < 0 || pwrite(state_fd, text, size, 0) != (ssize_t)size ||
	    ftruncate(state_fd, (off_t)size))
		log_error("the state cannot be kept: %s", strerror(errno));
}

int store_open(struct daemon *d)
{
	state_fd = memfd_create("ferry-guard", MFD_CLOEXEC);
	if (state_fd < 0)
		return -errno;
	store_state(d);
	return 0;
}

void store_all(struct daemon *d)
{
	static const char *const links[] = { "bind4", "bind6", "state-link" };

	store_put("state", state_fd);
	store_put("command", d->listener);
	store_put("ports", d->ports);
	store_put("stopped", d->stopped);
	store_put("events", d->events);
	for (int i = 0; i < 3; i++)
		store_put(links[i], d->links[i]);
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

static void restore_member(struct group *g, const json_t *row)
{
	json_int_t slot = json_integer_value(json_object_get(row, "slot"));
	struct member *m = &g->members[slot];

	if (slot < LISTENER_FIRST || slot >= LISTENER_SLOTS)
		return;
	m->cookie = (uint64_t)json_integer_value(json_object_get(row, "cookie"));
	m->pid = (pid_t)json_integer_value(json_object_get(row, "pid"));
	m->late = json_is_true(json_object_get(row, "late"));
	snprintf(m->comm, COMM, "%s", json_string_value(json_object_get(row, "comm")));
}

static int restore_group(struct guard *guard, const json_t *row)
{
	struct group *g = calloc(1, sizeof(*g));
	struct listener idle;
	json_t *member;
	size_t i;
	int r;

	if (!g)
		return -ENOMEM;
	g->guard = guard;
	g->number = (unsigned int)json_integer_value(json_object_get(row, "number"));
	each(g, take_one);
	g->next = guard->groups;
	guard->groups = g;
	r = group_map(g);
	if (r)
		return r;
	g->active = g->view->hold;
	r = inspect_fd(g->hold[g->active], 0, &g->like);
	if (r)
		return r;
	json_array_foreach(json_object_get(row, "members"), i, member)
		restore_member(g, member);
	/* the hand-over that an agent died in. One that does not listen would stay shut down, and with it
	 * every connection that it is given later */
	if (!inspect_fd(g->hold[1 - g->active], 0, &idle))
		shutdown(g->hold[1 - g->active], SHUT_RDWR);
	for (i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (!g->members[i].cookie)
			g->slots[i].weight = 0;
	return group_watch(g);
}

static int restore_guard(struct daemon *d, const json_t *row)
{
	struct listener_port at = {
		.netns = (uint64_t)json_integer_value(json_object_get(row, "netns")),
		.port = (uint32_t)json_integer_value(json_object_get(row, "port")),
	};
	struct guard *g = calloc(1, sizeof(*g));
	json_t *group;
	size_t i;
	int r = 0;

	if (!g)
		return -ENOMEM;
	*g = (struct guard){ .d = d, .at = at, .next = d->guards };
	d->guards = g;
	g->netns = take(json_string_value(json_object_get(row, "in")));
	g->diag = queues_open(d->netns, g->netns);
	g->generation = (uint32_t)json_integer_value(json_object_get(row, "generation"));
	g->newest = (pid_t)json_integer_value(json_object_get(row, "newest"));
	g->parent = (pid_t)json_integer_value(json_object_get(row, "parent"));
	snprintf(g->program, sizeof(g->program), "%s",
		 json_string_value(json_object_get(row, "program")));
	json_array_foreach(json_object_get(row, "groups"), i, group)
		if (!r)
			r = restore_group(g, group);
	return r;
}

int store_restore(struct daemon *d)
{
	static const char *const links[] = { "bind4", "bind6", "state-link" };
	json_t *all, *row;
	size_t i;
	int r = 0;

	given = sd_listen_fds_with_names(1, &names);
	if (given <= 0)
		return given;
	state_fd = take("state");
	if (state_fd < 0)
		return 0; /* whatever it is that somebody has handed to us */
	d->listener = take("command");
	d->ports = take("ports");
	d->stopped = take("stopped");
	d->events = take("events");
	for (i = 0; i < 3; i++)
		d->links[i] = take(links[i]);
	if (lseek(state_fd, 0, SEEK_SET))
		return -errno;
	all = json_loadfd(state_fd, 0, NULL);
	if (!all)
		return -EBADMSG;
	d->numbers = (unsigned int)json_integer_value(json_object_get(all, "numbers"));
	json_array_foreach(json_object_get(all, "guards"), i, row)
		if (!r)
			r = restore_guard(d, row);
	json_decref(all);
	return r ? r : 1;
}
