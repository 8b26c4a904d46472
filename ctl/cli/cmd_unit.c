// SPDX-License-Identifier: BSD-2-Clause
/* ferry unit list|show: words and records, read from the pins. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

static const char *const roles[] = { "", "origin", "destination", "ingress" };

struct flows {
	struct cli *cli;
	uint32_t unit;
	json_t *array;
};

static int collect(const struct ferry_flow *flow, uint32_t unit, void *arg)
{
	struct flows *f = arg;
	char text[FLOW_TEXT];

	if (unit == f->unit)
		json_array_append_new(f->array, json_string(flow_text(flow, text)));
	return 0;
}

json_t *cli_unit(struct cli *c, uint32_t unit, bool whole)
{
	uint64_t word = unit_word(&c->view, unit);
	const struct ferry_record *r = unit_record(&c->view, unit);
	char uuid[UUID_TEXT];
	json_t *o = json_pack("{s:s, s:i, s:s, s:I, s:i, s:i, s:s, s:I, s:I}", "unit",
			      uuid_text(r->uuid, uuid), "index", (int)unit, "state",
			      state_name(FERRY_WORD_STATE(word)), "epoch",
			      (json_int_t)FERRY_WORD_EPOCH(word), "hop", (int)FERRY_WORD_HOP(word),
			      "flows", (int)r->flows, "role",
			      roles[r->role < ARRAY_SIZE(roles) ? r->role : 0], "parked",
			      (json_int_t)r->parked, "lost_in_freeze", (json_int_t)r->lost);
	struct flows f = { c, unit, json_array() };

	if (!whole) {
		json_decref(f.array);
		return o;
	}
	table_walk(&c->view.flows, collect, &f);
	json_object_set_new(o, "tuples", f.array);
	json_object_set_new(o, "move", json_string(uuid_text(r->move_id, uuid)));
	json_object_set_new(o, "peer", json_integer(r->peer));
	json_object_set_new(o, "newer", json_integer(r->newer));
	json_object_set_new(o, "app", json_integer((json_int_t)r->app));
	return o;
}

int cmd_unit_list(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "unit", "UNIT" },   { "state", "STATE" }, { "epoch", "EPOCH" },
		{ "hop", "HOP" },     { "flows", "FLOWS" }, { "role", "ROLE" },
		{ "lost_in_freeze", "LOST" },
	};
	json_t *units = json_array();
	int r = argc ? cli_error(c, EXIT_USAGE, "usage", "no argument is wanted: %s", argv[0]) :
		       cli_view(c);

	for (uint32_t i = 1; !r && i < c->view.control.units; i++)
		if (FERRY_WORD_STATE(unit_word(&c->view, i)) != FERRY_FREE)
			json_array_append_new(units, cli_unit(c, i, false));
	if (r) {
		json_decref(units);
		return r;
	}
	return cli_print(c, json_pack("{s:s, s:o}", "node", c->node, "units", units), "units",
			 columns, ARRAY_SIZE(columns));
}

int cmd_unit_show(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = { { "tuple", "FLOWS" } };
	uint8_t uuid[16];
	json_t *o, *rows, *value;
	uint32_t unit;
	size_t i;
	int r;

	if (argc != 1 || uuid_parse_text(argv[0], uuid))
		return cli_error(c, EXIT_USAGE, "usage", "a unit's uuid is wanted");
	r = cli_view(c);
	if (r)
		return r;
	unit = unit_by_uuid(&c->view, uuid);
	if (!unit)
		return cli_error(c, EXIT_NOT_FOUND, "no-such-unit", "%s is not known on node %s",
				 argv[0], c->node);
	o = cli_unit(c, unit, true);
	if (c->json)
		return cli_print(c, o, NULL, NULL, 0);
	rows = json_array();
	json_array_foreach(json_object_get(o, "tuples"), i, value)
		json_array_append_new(rows, json_pack("{s:O}", "tuple", value));
	json_object_set_new(o, "rows", rows);
	return cli_print(c, o, "rows", columns, 1);
}
