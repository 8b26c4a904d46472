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
#include "base/fault.h"
#include "base/log.h"
#include "guard/guard.h"
#include "guard/store.h"

struct store store = { .fd = -1 };

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
		char name[STORE_NAME];

		snprintf(name, sizeof(name), "%u-hold%u%d", h->group->number, h->kind, i);
		call(name, &h->fd[i]);
	}
}

/* The descriptors of a group by the names that they have there. */
void store_each(struct group *g, void (*call)(const char *name, int *fd))
{
	const struct {
		const char *name;
		int *fd;
	} rows[] = {
		{ "program", &g->program }, { "socks", &g->socks },   { "group", &g->group_fd },
		{ "slots", &g->slots_fd },  { "counts", &g->counts },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[STORE_NAME];

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
	store_each(g, put_one);
	store_state(g->guard->d);
}

void store_drop_group(struct group *g)
{
	store_each(g, drop_one);
}

void store_hold(struct hold *h)
{
	each_of_hold(h, put_one);
}

void store_drop_hold(struct hold *h)
{
	each_of_hold(h, drop_one);
}

static json_t *numbers(const void *values, size_t n)
{
	const uint64_t *v = values;
	json_t *rows = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(rows, json_integer((json_int_t)v[i]));
	return rows;
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
	return json_pack("{s:i,s:s,s:o,s:o,s:o}", "number", (int)g->number, "program", g->registered,
			 "members", pids, "before", numbers(g->before, WITNESS_COUNT), "counted",
			 numbers(g->counted, LISTENER_COUNT));
}

const char *store_netns_name(const struct guard *g, char name[STORE_NAME])
{
	snprintf(name, STORE_NAME, "netns-%llu-%u", (unsigned long long)g->at.netns, g->at.port);
	return name;
}

void store_guard(struct guard *g)
{
	char name[STORE_NAME];

	store_put(store_netns_name(g, name), g->netns);
	store_state(g->d);
}

void store_drop_guard(struct guard *g)
{
	char name[STORE_NAME];

	store_drop(store_netns_name(g, name));
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
	store.turn++;
	all = json_pack("{s:I,s:i,s:i,s:b,s:o,s:I}", "turn", (json_int_t)store.turn, "layout",
			STATE_LAYOUT, "numbers", (int)d->numbers, "forgets", d->forgets, "guards",
			guards, "end", (json_int_t)store.turn);
	text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	size = text ? strlen(text) + 1 : 0;
	if (!size || size > STATE_MAX) {
		log_error("the state cannot be kept: of %zu octets, more than %d", size, STATE_MAX);
		return;
	}
	if (pwrite(store.fd, text, size, (off_t)(store.turn % 2) * STATE_MAX) != (ssize_t)size)
		log_error("the state cannot be kept: %s", strerror(errno));
}

int store_open(struct daemon *d)
{
	store.fd = memfd_create("ferry-guard", MFD_CLOEXEC);
	if (store.fd < 0)
		return -errno;
	store_state(d);
	return 0;
}

/* Those of the agent itself. */
void store_each_own(struct daemon *d, void (*call)(const char *name, int *fd))
{
	call("state", &store.fd);
	call("command", &d->listener);
	call("ports", &d->ports);
	call("unmet", &d->unmet);
	call("events", &d->events);
	call("bind4", &d->links[0]);
	call("bind6", &d->links[1]);
	call("states", &d->links[2]);
	for (int i = 0; i < LEDGER_FD_COUNT; i++) {
		char name[STORE_NAME];

		snprintf(name, sizeof(name), "witness-%s", ledger_fd_names[i]);
		call(name, &d->ledger.fd[i]);
	}
}

bool store_has_room(const struct daemon *d, unsigned int n, char words[WORDS])
{
	unsigned int max = fault(FAULT_KEPT_MAX) ? fault(FAULT_KEPT_MAX) : KEPT_MAX;

	for (const struct guard *g = d->guards; g; g = g->next) {
		n++;
		for (const struct group *group = g->groups; group; group = group->next) {
			n += GROUP_FDS;
			for (int i = 0; i < LISTENER_KINDS; i++)
				n += hold_exists(&group->hold[i]) ? 2 : 0;
		}
	}
	if (n <= max)
		return true;
	snprintf(words, WORDS, "%u descriptors are kept already, and an agent's end would lose what is beyond: "
			       "take other ports off (ferry guard off --port P)", max);
	return false;
}

void store_all(struct daemon *d)
{
	store_each_own(d, put_one);
	for (struct guard *g = d->guards; g; g = g->next) {
		store_guard(g);
		for (struct group *group = g->groups; group; group = group->next)
			store_group(group);
	}
}

