// SPDX-License-Identifier: BSD-2-Clause
/* ferry: finds the verb and runs it. The table is the command line's reference. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

static const struct verb verbs[] = {
	{ "status", NULL, cmd_status, "", "this node at a glance" },
	{ "node", "list", cmd_node_list, "", "the other nodes, as the datapath sends to them" },
	{ "flow", "list", cmd_flow_list, "[--limit N]", "flows with an entry here" },
	{ "flow", "show", cmd_flow_show, "TUPLE", "one flow: 'tcp REMOTE:PORT > LOCAL:PORT'" },
	{ "unit", "list", cmd_unit_list, "", "units that live here or have" },
	{ "unit", "show", cmd_unit_show, "UNIT", "one unit with its flows" },
	{ "move", NULL, cmd_move, "UNIT|--flow TUPLE --to NODE [--dry-run]",
	  "move a unit to another node, or say whether it would" },
	{ "guard", "list", cmd_guard_list, "", "listeners that lose nobody, and who holds what" },
	{ "guard", "off", cmd_guard_off, "[--port P] [--force]", "leave them as they were" },
	{ "guard", NULL, cmd_guard, "[--dry-run] --pid N|--unit NAME [--port P] | --port P -- COMMAND",
	  "keep a server's connections when it restarts or crashes" },
	{ "listener", "list", cmd_listener_list, "[--port P]", "guarded listeners, by generation" },
	{ "listener", "generation", cmd_listener_generation, "--port P GENERATION",
	  "which takes new connections" },
	{ "listener", "policy", cmd_listener_policy,
	  "--port P [--new take|wait] [--options alike|any] [--pid N --weight W]",
	  "how listeners share what comes" },
	{ "watch", "show", cmd_watch_show, "[--name N]", "what a watch counts, or since when none does" },
	{ "watch", NULL, cmd_watch, "[--tuples] [--seconds N] [--name N]",
	  "tell which clients closed listeners lose" },
	{ "counters", NULL, cmd_counters, "[--all]", "packets by what became of them" },
	{ "pki", "init", cmd_pki_init, "[--dir D] [--days N]", "make the fleet's authority" },
	{ "pki", "issue", cmd_pki_issue, "NODE [--dir D] [--days N]", "a node's key, certificate" },
	{ "pki", "show", cmd_pki_show, "[NODE] [--dir D]", "certificates, and when they end" },
};

static int usage(FILE *to, int code)
{
	fputs("Usage: ferry [-j] [--node NAME] [--socket PATH] COMMAND\n\n", to);
	for (unsigned int i = 0; i < ARRAY_SIZE(verbs); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s %s%s%s", verbs[i].object,
			 verbs[i].name ? verbs[i].name : "", verbs[i].name ? " " : "",
			 verbs[i].arguments);
		fprintf(to, "  %-46s %s\n", name, verbs[i].help);
	}
	fputs("\n-j prints JSON. Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 degraded.\n", to);
	return code;
}

static int run(struct cli *c, int argc, char **argv)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(verbs); i++) {
		const struct verb *v = &verbs[i];
		int used = v->name ? 2 : 1;

		if (argc >= used && !strcmp(argv[0], v->object) &&
		    (!v->name || !strcmp(argv[1], v->name)))
			return v->run(c, argc - used, argv + used);
	}
	if (c->json)
		return cli_error(c, EXIT_USAGE, "usage", "no such command: ferry --help lists them");
	return usage(stderr, EXIT_USAGE);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "node", required_argument, NULL, 'n' },
		{ "socket", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	struct cli c = {};
	int o, code;

	while ((o = getopt_long(argc, argv, "+jn:s:h", longs, NULL)) != -1) {
		switch (o) {
		case 'j':
			c.json = true;
			break;
		case 'n':
			c.node = optarg;
			break;
		case 's':
			c.socket = optarg;
			break;
		case 'h':
			return usage(stdout, EXIT_OK);
		default:
			return c.json ? cli_error(&c, EXIT_USAGE, "usage", "no such option") :
					usage(stderr, EXIT_USAGE);
		}
	}
	if (optind < argc && !strcmp(argv[argc - 1], "-j")) { /* there, too */
		c.json = true;
		argc--;
	}
	code = run(&c, argc - optind, argv + optind);
	dataplane_close(&c.view);
	return code;
}
