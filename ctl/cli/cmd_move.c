// SPDX-License-Identifier: BSD-2-Clause
/* ferry move: asks the agent of the node that the unit lives on. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

#define TIMEOUT_MS 30000

static int usage(struct cli *c)
{
	return cli_error(c, EXIT_USAGE, "usage",
			 "ferry move UNIT --to NODE, or ferry move --flow TUPLE --to NODE");
}

static int unit_of_flow(struct cli *c, const char *tuple, char uuid[UUID_TEXT])
{
	struct ferry_flow flow;
	uint32_t unit;
	int r = cli_find_flow(c, tuple, &flow, &unit);

	if (!r)
		uuid_text(unit_record(&c->view, unit)->uuid, uuid);
	c->pins = false; /* what is printed is the agent's answer */
	return r;
}

int cmd_move(struct cli *c, int argc, char **argv)
{
	const char *unit = NULL, *flow = NULL, *to = NULL, *error;
	char uuid[UUID_TEXT];
	json_t *answer;
	int r = EXIT_OK;

	for (int i = 0; i < argc; i++) {
		bool more = i + 1 < argc;

		if (more && !strcmp(argv[i], "--to"))
			to = argv[++i];
		else if (more && !strcmp(argv[i], "--flow"))
			flow = argv[++i];
		else if (!unit && argv[i][0] != '-')
			unit = argv[i];
		else
			return usage(c);
	}
	if (!to || !unit == !flow)
		return usage(c);
	if (flow)
		r = unit_of_flow(c, flow, uuid);
	r = r ? r : cli_ask(c, json_pack("{s:s, s:s, s:s}", "command", "move", "unit",
					 flow ? uuid : unit, "to", to),
			    TIMEOUT_MS, &answer);
	if (r)
		return r;
	error = json_string_value(json_object_get(answer, "error"));
	if (!error)
		return cli_print(c, answer, NULL, NULL, 0);
	r = !strncmp(error, "no-such-", 8) ? EXIT_NOT_FOUND : EXIT_FAILED;
	if (c->json)
		cli_print(c, answer, NULL, NULL, 0);
	else
		fprintf(stderr, "ferry: %s: %s (%s)\n", error,
			json_string_value(json_object_get(answer, "text")),
			json_string_value(json_object_get(answer, "detail")));
	return r;
}
