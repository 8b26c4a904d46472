// SPDX-License-Identifier: BSD-2-Clause
/* ferry counters: packets by reason, summed over CPUs, with what each reason means. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

static const struct {
	const char *name, *text;
} reasons[] = {
#define X(n, id, name, text) [n] = { name, text },
	FERRY_REASONS(X)
#undef X
};

int cmd_counters(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "name", "REASON" }, { "packets", "PACKETS" }, { "text", "MEANING" },
	};
	bool all = argc == 1 && !strcmp(argv[0], "--all");
	uint64_t sum[FERRY_R_COUNT];
	json_t *rows;
	int r;

	if (argc && !all)
		return cli_error(c, EXIT_USAGE, "usage", "ferry counters [--all]");
	r = cli_view(c);
	if (r)
		return r;
	if (dataplane_counters(&c->view, sum))
		return cli_error(c, EXIT_FAILED, "no-counters", "cannot read the counters");
	rows = json_array();
	for (int i = 0; i < FERRY_R_COUNT; i++)
		if (sum[i] || all || c->json)
			json_array_append_new(rows, json_pack("{s:i, s:s, s:I, s:s}", "number", i,
							      "name", reasons[i].name, "packets",
							      (json_int_t)sum[i], "text",
							      reasons[i].text));
	return cli_print(c, json_pack("{s:s, s:o}", "node", c->node, "counters", rows), "counters",
			 columns, ARRAY_SIZE(columns));
}
