// SPDX-License-Identifier: BSD-2-Clause
/* ferry flow list|show: the flow tables, read from the pins. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

#define LIMIT 1000

json_t *cli_flow(struct cli *c, const struct ferry_flow *flow, uint32_t unit)
{
	uint64_t word = unit_word(&c->view, unit);
	char text[FLOW_TEXT], uuid[UUID_TEXT];

	return json_pack("{s:s, s:s, s:s, s:I, s:i}", "flow", flow_text(flow, text), "unit",
			 uuid_text(unit_record(&c->view, unit)->uuid, uuid), "state",
			 state_name(FERRY_WORD_STATE(word)), "epoch",
			 (json_int_t)FERRY_WORD_EPOCH(word), "hop", (int)FERRY_WORD_HOP(word));
}

struct list {
	struct cli *cli;
	json_t *flows;
	long total, limit;
};

static int collect(const struct ferry_flow *flow, uint32_t unit, void *arg)
{
	struct list *l = arg;

	if (l->total++ < l->limit)
		json_array_append_new(l->flows, cli_flow(l->cli, flow, unit));
	return 0;
}

int cmd_flow_list(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "flow", "FLOW" },   { "state", "STATE" }, { "epoch", "EPOCH" },
		{ "hop", "HOP" },     { "unit", "UNIT" },
	};
	struct list l = { .cli = c, .limit = LIMIT };
	char *end = "";
	int r;

	if (argc == 2 && !strcmp(argv[0], "--limit"))
		l.limit = strtol(argv[1], &end, 10);
	if ((argc && argc != 2) || (argc && (strcmp(argv[0], "--limit") || end == argv[1])) ||
	    *end || l.limit < 0)
		return cli_error(c, EXIT_USAGE, "usage", "ferry flow list [--limit N]");
	r = cli_view(c);
	if (r)
		return r;
	l.flows = json_array();
	table_walk(&c->view.flows, collect, &l);
	return cli_print(c,
			 json_pack("{s:s, s:i, s:i, s:o}", "node", c->node, "total", (int)l.total,
				   "shown", (int)json_array_size(l.flows), "flows", l.flows),
			 "flows", columns, ARRAY_SIZE(columns));
}

int cli_find_flow(struct cli *c, const char *tuple, struct ferry_flow *flow, uint32_t *unit)
{
	int r;

	if (flow_parse(tuple, flow))
		return cli_error(c, EXIT_USAGE, "usage",
				 "a tuple is wanted: 'tcp REMOTE:PORT > LOCAL:PORT', '*' for the "
				 "remote of a bound UDP port, [ADDRESS]:PORT for IPv6");
	r = cli_view(c);
	if (r)
		return r;
	*unit = table_find(&c->view.flows, flow);
	return *unit ? EXIT_OK :
		       cli_error(c, EXIT_NOT_FOUND, "no-such-flow", "no entry for %s on node %s",
				 tuple, c->node);
}

int cmd_flow_show(struct cli *c, int argc, char **argv)
{
	struct ferry_flow flow;
	uint32_t unit;
	int r = cli_find_flow(c, argc == 1 ? argv[0] : "", &flow, &unit);

	return r ? r : cli_print(c, cli_flow(c, &flow, unit), NULL, NULL, 0);
}
