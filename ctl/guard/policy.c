// SPDX-License-Identifier: BSD-2-Clause
/* Which generation takes new connections, and how many each listener; see guard.h. */
#include <stdio.h>
#include <string.h>
#include "guard/guard.h"

static bool has_generation(const struct group *g, uint32_t generation)
{
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && g->slots[i].generation == generation)
			return true;
	return false;
}

/* What it has no room for is held for its own kind. */
static void work(struct group *g, uint32_t generation)
{
	g->view->working = generation;
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && g->slots[i].generation == generation)
			g->view->kind = g->slots[i].kind;
}

void policy_succeed(struct group *g)
{
	uint32_t newest = 0;

	if (has_generation(g, g->view->working))
		return;
	for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
		if (g->members[i].cookie && g->slots[i].generation > newest)
			newest = g->slots[i].generation;
	if (newest)
		work(g, newest);
}

/* Workers, each with a listener of its own, are of one generation with their siblings and with the
 * parent that has forked them; what starts one server after the other is another program. */
static bool is_kin(pid_t pid, pid_t other, pid_t others_parent)
{
	pid_t parent = inspect_parent(pid);
	char program[PATH], parents[PATH];

	if (pid == other || pid == others_parent)
		return true;
	if (!parent)
		return false;
	return parent == other || (parent == others_parent && !inspect_program(pid, program) &&
				   !inspect_program(parent, parents) && !strcmp(program, parents));
}

uint32_t policy_generation_of(struct guard *g, pid_t pid)
{
	if (!is_kin(pid, g->newest, g->parent)) {
		for (struct group *group = g->groups; group; group = group->next)
			for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
				pid_t other = group->members[i].pid;

				if (group->members[i].cookie &&
				    is_kin(pid, other, inspect_parent(other)))
					return group->slots[i].generation;
			}
		g->generation++;
	}
	g->newest = pid;
	g->parent = inspect_parent(pid);
	return g->generation;
}

void policy_begin(struct group *g)
{
	g->view->mixed = g->guard->mixed;
	g->view->waits = g->guard->wait;
}

static json_t *no_such(const struct guard *g, uint32_t generation)
{
	char text[WORDS];
	int n = snprintf(text, sizeof(text), "no listener of generation %u is on port %u: there are",
			 generation, g->at.port);

	for (uint32_t i = 1; i <= g->generation && n < WORDS; i++)
		for (const struct group *group = g->groups; group; group = group->next)
			if (has_generation(group, i)) {
				n += snprintf(text + n, (size_t)(WORDS - n), " %u", i);
				break;
			}
	return json_pack("{s:s,s:s}", "error", "not-found", "text", text);
}

json_t *policy_generation(struct guard *g, const json_t *request)
{
	uint32_t generation =
		(uint32_t)json_integer_value(json_object_get(request, "generation"));
	int addresses = 0;

	for (struct group *group = g->groups; group; group = group->next) {
		group_refresh(group);
		if (!has_generation(group, generation))
			continue;
		work(group, generation);
		addresses++;
	}
	if (!addresses)
		return no_such(g, generation);
	return json_pack("{s:i,s:i,s:i}", "port", (int)g->at.port, "working", (int)generation,
			 "addresses", addresses);
}

/* All listeners of a process. How many. */
static int set_weight(struct guard *g, pid_t pid, uint32_t weight)
{
	int n = 0;

	for (struct group *group = g->groups; group; group = group->next) {
		group_refresh(group);
		for (int i = LISTENER_FIRST; i < LISTENER_SLOTS; i++)
			if (group->members[i].cookie && group->members[i].pid == pid) {
				group->slots[i].weight = weight;
				n++;
			}
	}
	return n;
}

json_t *policy_set(struct guard *g, const json_t *request)
{
	const json_t *weight = json_object_get(request, "weight");
	const char *new = json_string_value(json_object_get(request, "new"));
	const char *options = json_string_value(json_object_get(request, "options"));
	pid_t member = (pid_t)json_integer_value(json_object_get(request, "member"));

	if (weight && !set_weight(g, member, (uint32_t)json_integer_value(weight)))
		return json_pack("{s:s,s:s}", "error", "not-found", "text",
				 "that process has no listener there that is given connections");
	if (new)
		g->wait = !strcmp(new, "wait");
	if (options)
		g->mixed = !strcmp(options, "any");
	for (struct group *group = g->groups; group; group = group->next) {
		policy_begin(group);
		group_hand_over(group);
	}
	return json_pack("{s:i,s:s,s:s}", "port", (int)g->at.port, "new", g->wait ? "wait" : "take",
			 "options", g->mixed ? "any" : "alike");
}
