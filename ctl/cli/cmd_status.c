// SPDX-License-Identifier: BSD-2-Clause
/* ferry status: the node at a glance, verdict first; from the pins, and whether an agent
 * answers. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

static int count_service(const struct ferry_service_key *key, uint32_t hop, void *arg)
{
	(void)key, (void)hop;
	++*(int *)arg;
	return 0;
}

/* What the agent says of itself, NULL where none answers. */
static json_t *ask_agent(struct cli *c)
{
	struct cli quiet = *c;
	json_t *answer = NULL;

	quiet.quiet = true;
	return cli_ask(&quiet, json_pack("{s:s}", "command", "ping"), 1000, &answer) ? NULL : answer;
}

int cmd_status(struct cli *c, int argc, char **argv)
{
	int states[FERRY_STATES] = {}, services = 0, nodes = 0, resolved = 0;
	char verdict[96] = "OK";
	json_t *units, *agent;
	const char *missing;
	int r = argc ? cli_error(c, EXIT_USAGE, "usage", "no argument is wanted: %s", argv[0]) :
		       cli_view(c);

	if (r)
		return r;
	for (uint32_t i = 1; i < c->view.control.units; i++) {
		uint32_t state = FERRY_WORD_STATE(unit_word(&c->view, i));

		if (state < FERRY_STATES)
			states[state]++;
	}
	for (uint32_t i = 1; i < FERRY_NODES; i++) {
		nodes += c->view.nexthops[i].node != 0;
		resolved += c->view.nexthops[i].live != 0;
	}
	dataplane_services(&c->view, count_service, &services);
	agent = ask_agent(c);
	missing = json_string_value(json_object_get(agent, "missing"));
	if (!agent)
		snprintf(verdict, sizeof(verdict), "DEGRADED: no agent answers, nothing can move");
	else if (resolved < nodes)
		snprintf(verdict, sizeof(verdict), "DEGRADED: a node is not resolved");
	else if (missing)
		snprintf(verdict, sizeof(verdict), "DEGRADED: no connection to the agent of %s",
			 missing);
	units = json_object();
	for (int i = 1; i < FERRY_STATES; i++)
		json_object_set_new(units, state_name((uint32_t)i), json_integer(states[i]));
	r = strcmp(verdict, "OK") ? EXIT_DEGRADED : EXIT_OK;
	cli_print(c,
		  json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "verdict",
			    verdict, "node", c->node, "number", (int)c->view.control.node, "agent",
			    (int)json_integer_value(json_object_get(agent, "pid")), "connected",
			    (int)json_integer_value(json_object_get(agent, "connected")), "nodes",
			    nodes, "resolved", resolved, "services", services,
			    "flows", (int)(c->view.flows.used4 + c->view.flows.used6), "local",
			    states[FERRY_LOCAL], "remote", states[FERRY_REMOTE], "units", units),
		  NULL, NULL, 0);
	json_decref(agent);
	return r;
}
