// SPDX-License-Identifier: BSD-2-Clause
/* What is guarded, as JSON: the answer of `ferry guard list`; see guard.h and ferry(8). */
#include <stdio.h>
#include <string.h>
#include "guard/guard.h"

static json_t *describe_member(const struct group *g, int slot)
{
	const struct member *m = &g->members[slot];

	return json_pack("{s:i,s:s,s:i,s:i,s:i,s:i,s:i,s:I}", "pid", (int)m->pid, "comm", m->comm,
			 "generation", (int)g->slots[slot].generation, "weight",
			 (int)g->slots[slot].weight, "queued", (int)m->queued, "backlog",
			 (int)m->backlog, "kind", (int)g->slots[slot].kind, "socket",
			 (json_int_t)m->cookie);
}

/* What differs: in the options that matter, from those who come there now. */
static json_t *holders(const struct group *g)
{
	const struct hold *now = &g->hold[g->view->kind];
	json_t *rows = json_array();

	for (const struct hold *h = g->hold; h < g->hold + LISTENER_KINDS; h++) {
		char words[WORDS] = "";

		if (!hold_exists(h))
			continue;
		holder_differs(now->fd[now->active], h->fd[h->active], words);
		json_array_append_new(rows, json_pack("{s:i,s:i,s:s}", "kind", (int)h->kind, "held",
						      (int)h->held, "differs", words));
	}
	return rows;
}

static json_t *strangers(const struct guard *g)
{
	json_t *rows = json_array();

	for (unsigned int i = 0; i < g->n_strangers; i++) {
		const struct stranger *s = &g->strangers[i];

		json_array_append_new(rows, json_pack("{s:i,s:s,s:s,s:s}", "pid", (int)s->pid,
						      "comm", s->comm, "address", s->address, "why",
						      s->why));
	}
	return rows;
}

static json_t *counts_of(const struct group *g)
{
	static const char *const names[] = {
#define X(id, name, text) name,
		LISTENER_COUNTS(X)
#undef X
	};
	json_t *counts = json_object();
	uint64_t n[LISTENER_COUNT];

	group_count(g, n);
	for (int i = 0; i < LISTENER_COUNT; i++)
		json_object_set_new(counts, names[i], json_integer((json_int_t)n[i]));
	return counts;
}

/* Of a group, what a guard without one does not have. */
static void describe_group(json_t *o, struct group *g)
{
	json_t *members = json_array();
	char text[LISTENER_TEXT];

	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie)
			json_array_append_new(members, describe_member(g, i));
	json_object_set_new(o, "address", json_string(listener_text(&g->like, text)));
	json_object_set_new(o, "v6only", json_boolean(g->like.v6only));
	json_object_set_new(o, "uid", json_integer(g->like.uid));
	json_object_set_new(o, "state",
			    json_string(json_array_size(members) ? "running" : "holding"));
	json_object_set_new(o, "held", json_integer(group_held(g)));
	json_object_set_new(o, "working", json_integer(g->view->working));
	json_object_set_new(o, "members", members);
	json_object_set_new(o, "holders", holders(g));
	json_object_set_new(o, "counts", counts_of(g));
	json_object_set_new(o, "ledger", witness_describe(g));
}

static json_t *describe(const struct guard *g, struct group *group)
{
	json_t *o = json_pack("{s:i,s:s,s:b,s:i,s:s,s:i,s:s,s:s,s:s,s:[],s:o,s:{}}", "port",
			      (int)g->at.port, "address", "", "v6only", 0, "uid", -1, "state", "waiting",
			      "held", 0, "program", guard_program(g, group), "new", g->wait ? "wait" : "take",
			      "options", g->mixed ? "any" : "alike", "members", "strangers",
			      strangers(g), "counts");

	if (group)
		describe_group(o, group);
	return o;
}

json_t *describe_all(struct daemon *d)
{
	json_t *rows = json_array();

	for (struct guard *g = d->guards; g; g = g->next) {
		guard_refresh_strangers(g);
		for (struct group *group = g->groups; group; group = group->next) {
			group_refresh(group);
			json_array_append_new(rows, describe(g, group));
		}
		if (!g->groups)
			json_array_append_new(rows, describe(g, NULL));
	}
	return json_pack("{s:i,s:i,s:b,s:o}", "agent", (int)getpid(), "keeper", (int)d->keeper, "wakes",
			 !d->forgets, "guards", rows);
}
