// SPDX-License-Identifier: BSD-2-Clause
/* ferry move: asks the agent of the node that the unit lives on, for the move or for a dry run. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

#define TIMEOUT_MS 30000

static int usage(struct cli *c)
{
	return cli_error(c, EXIT_USAGE, "usage",
			 "ferry move UNIT|--flow TUPLE --to NODE [--dry-run]");
}

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* A line of the table: a socket, or what stands against the whole unit. */
static json_t *line(json_t *o, const char *flow)
{
	json_t *queued = json_object_get(o, "queued"), *mtu = json_object_get(o, "mtu");
	char why[512] = "";

	if (text_of(o, "reason")[0])
		snprintf(why, sizeof(why), "%s: %s%s%s%s", text_of(o, "reason"), text_of(o, "text"),
			 text_of(o, "detail")[0] ? " (" : "", text_of(o, "detail"),
			 text_of(o, "detail")[0] ? ")" : "");
	return json_pack("{s:s, s:s, s:s, s:O*, s:O*, s:O*, s:O*, s:s}", "flow", flow, "role",
			 text_of(o, "role"), "move", text_of(o, "reason")[0] ? "no" : "yes", "recv",
			 json_object_get(queued, "recv"), "sent", json_object_get(queued, "sent"),
			 "unsent", json_object_get(queued, "unsent"), "route",
			 json_object_get(mtu, "route"), "why", why);
}

static int print_dry_run(struct cli *c, json_t *answer)
{
	static const struct column columns[] = {
		{ "flow", "FLOW" },   { "role", "ROLE" }, { "move", "MOVE" },
		{ "recv", "RECV" },   { "sent", "SENT" }, { "unsent", "UNSENT" },
		{ "route", "ROUTE" }, { "why", "WHY" },
	};
	int code = json_is_true(json_object_get(answer, "would_move")) ? EXIT_OK : EXIT_DEGRADED;
	json_t *rows, *row;
	size_t i;

	if (!c->json) {
		rows = json_array();
		json_array_foreach(json_object_get(answer, "reasons"), i, row) {
			char at[64];

			snprintf(at, sizeof(at), "the unit, at %s", text_of(row, "node"));
			json_array_append_new(rows, line(row, at));
		}
		json_array_foreach(json_object_get(answer, "sockets"), i, row)
			json_array_append_new(rows, line(row, text_of(row, "flow")));
		json_object_set_new(answer, "rows", rows);
	}
	cli_print(c, answer, "rows", columns, ARRAY_SIZE(columns));
	return code;
}

/* What is not there, or a request that makes no sense, is not a unit that does not move. */
static int error_code(const char *error, bool dry)
{
	if (!strncmp(error, "no-such-", 8))
		return EXIT_NOT_FOUND;
	return dry && strcmp(error, "bad-command") ? EXIT_DEGRADED : EXIT_FAILED;
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
	bool dry = false;
	char uuid[UUID_TEXT];
	json_t *answer;
	int r = EXIT_OK;

	for (int i = 0; i < argc; i++) {
		bool more = i + 1 < argc;

		if (more && !strcmp(argv[i], "--to"))
			to = argv[++i];
		else if (more && !strcmp(argv[i], "--flow"))
			flow = argv[++i];
		else if (!strcmp(argv[i], "--dry-run"))
			dry = true;
		else if (!unit && argv[i][0] != '-')
			unit = argv[i];
		else
			return usage(c);
	}
	if (!to || !unit == !flow)
		return usage(c);
	if (flow)
		r = unit_of_flow(c, flow, uuid);
	r = r ? r :
		cli_ask(c,
			json_pack("{s:s, s:s, s:s}", "command", dry ? "dry-run" : "move", "unit",
				  flow ? uuid : unit, "to", to),
			TIMEOUT_MS, &answer);
	if (r)
		return r;
	error = json_string_value(json_object_get(answer, "error"));
	if (!error)
		return dry ? print_dry_run(c, answer) : cli_print(c, answer, NULL, NULL, 0);
	r = error_code(error, dry);
	if (c->json)
		cli_print(c, answer, NULL, NULL, 0);
	else
		fprintf(stderr, "ferry: %s: %s (%s)\n", error,
			json_string_value(json_object_get(answer, "text")),
			json_string_value(json_object_get(answer, "detail")));
	return r;
}
