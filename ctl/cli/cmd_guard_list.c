// SPDX-License-Identifier: BSD-2-Clause
/* ferry guard list and off: what ferry-guard has, and the end of it. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/guard_text.h"

static void show_members(const json_t *guard)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(guard, "members"), i, row)
		printf("  %s (pid %lld), generation %lld%s: %lld queued of %lld\n", words(row, "comm"),
		       number(row, "pid"), number(row, "generation"),
		       number(row, "generation") == number(guard, "working") ? "" : ", not in use",
		       number(row, "queued"), number(row, "backlog"));
	json_array_foreach(json_object_get(guard, "strangers"), i, row)
		printf("  %s (pid %lld) on %s is given nothing: %s\n", words(row, "comm"),
		       number(row, "pid"), words(row, "address"), words(row, "why"));
}

static bool has_kind(const json_t *guard, long long kind)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(guard, "members"), i, row)
		if (number(row, "kind") == kind)
			return true;
	return false;
}

/* What those that are there must not be given. */
static void show_kept(const json_t *guard)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(guard, "holders"), i, row)
		if (number(row, "held") && *words(row, "differs") &&
		    !has_kind(guard, number(row, "kind")))
			printf("  %lld of those wait for a listener with other options (%s). To give them "
			       "to those that are here: ferry listener policy --port %lld --options any\n",
			       number(row, "held"), words(row, "differs"), number(guard, "port"));
}

static void show_ledger(const json_t *guard)
{
	const json_t *l = json_object_get(guard, "ledger");
	char since[CLI_WHEN];

	if (!l)
		return;
	cli_when((uint64_t)number(l, "since_ns"), since);
	if (!json_is_true(json_object_get(l, "watching"))) {
		printf("  not watching since %s: %s\n", since, words(l, "why"));
		return;
	}
	printf("  closed listeners had %lld since %s: given on %lld (and dead %lld), held %lld, lost "
	       "%lld, cancelled %lld\n",
	       number(l, "queued"), since, number(l, "migrated_alive"), number(l, "migrated_dead"),
	       number(l, "held"), number(l, "lost"), number(l, "cancelled"));
	if (number(l, "unexplained"))
		printf("  %lld of these are not accounted for\n", number(l, "unexplained"));
}

static void show(const json_t *guard)
{
	const char *address = words(guard, "address");

	printf("%s %s, port %lld: %lld held\n", words(guard, "state"),
	       *address ? address : "(nobody has listened yet)", number(guard, "port"),
	       number(guard, "held"));
	show_members(guard);
	show_kept(guard);
	show_ledger(guard);
}

int cmd_guard_list(struct cli *c, int argc, char **argv)
{
	json_t *answer = NULL, *guard;
	size_t i;
	int code;

	(void)argv;
	if (argc)
		return cli_error(c, EXIT_USAGE, "usage", "no argument is wanted");
	code = cli_ask_guard(c, json_pack("{s:s}", "verb", "list"), false, &answer);
	if (!code && c->json)
		return cli_print(c, answer, NULL, NULL, 0);
	if (!code)
		json_array_foreach(json_object_get(answer, "guards"), i, guard)
			show(guard);
	json_decref(answer);
	return code;
}

int cmd_guard_off(struct cli *c, int argc, char **argv)
{
	bool force = false;
	json_int_t port = 0;
	json_t *answer = NULL;
	int code = EXIT_OK;

	for (int i = 0; i < argc && !code; i++) {
		if (!strcmp(argv[i], "--force"))
			force = true;
		else if (i + 1 < argc && !port && !strcmp(argv[i], "--port"))
			code = cli_port(c, argv[++i], &port);
		else
			code = cli_error(c, EXIT_USAGE, "usage", "[--port P] [--force] is wanted");
	}
	if (!code)
		code = cli_ask_guard(c, json_pack("{s:s,s:i,s:I,s:b}", "verb", "off", "pid",
						  (int)getpid(), "port", port, "force", force),
				     false, &answer);
	if (!code)
		return cli_print(c, answer, NULL, NULL, 0);
	json_decref(answer);
	return code;
}
