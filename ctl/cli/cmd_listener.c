// SPDX-License-Identifier: BSD-2-Clause
/* ferry listener: who of a guarded port's listeners is given what, for deploys that roll. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/guard_text.h"

static int ask(struct cli *c, json_t *request, json_t **answer)
{
	json_object_set_new(request, "pid", json_integer(getpid()));
	return cli_ask_guard(c, request, false, answer);
}

static const char *state_of(const json_t *guard, const json_t *member)
{
	if (!number(member, "weight"))
		return "drained";
	return number(member, "generation") == number(guard, "working") ? "working" : "waiting";
}

/* One row a listener. */
static json_t *rows_of(const json_t *answer, json_int_t port)
{
	json_t *rows = json_array(), *guard, *member;
	size_t i, j;

	json_array_foreach(json_object_get(answer, "guards"), i, guard) {
		if (port && number(guard, "port") != port)
			continue;
		json_array_foreach(json_object_get(guard, "members"), j, member) {
			json_t *row = json_copy(member);

			json_object_set(row, "address", json_object_get(guard, "address"));
			json_object_set(row, "port", json_object_get(guard, "port"));
			json_object_set_new(row, "state", json_string(state_of(guard, member)));
			json_array_append_new(rows, row);
		}
	}
	return rows;
}

int cmd_listener_list(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "address", "ADDRESS" }, { "pid", "PID" },	{ "comm", "PROGRAM" },
		{ "generation", "GEN" },  { "state", "STATE" }, { "weight", "WEIGHT" },
		{ "queued", "QUEUED" },	  { "backlog", "BACKLOG" },
	};
	json_t *answer = NULL, *rows;
	json_int_t port = 0;
	int code = EXIT_OK;

	if (argc == 2 && !strcmp(argv[0], "--port"))
		code = cli_port(c, argv[1], &port);
	else if (argc)
		code = cli_error(c, EXIT_USAGE, "usage", "[--port P] is wanted");
	if (!code)
		code = ask(c, json_pack("{s:s}", "verb", "list"), &answer);
	if (code)
		return code;
	rows = rows_of(answer, port);
	json_decref(answer);
	return cli_print(c, json_pack("{s:o}", "listeners", rows), "listeners", columns,
			 ARRAY_SIZE(columns));
}

static int parse_number(struct cli *c, const char *name, const char *text, json_int_t max,
			json_int_t *n)
{
	char *end;

	*n = strtoll(text, &end, 10);
	if (!*text || *end || *n < 0 || *n > max)
		return cli_error(c, EXIT_USAGE, "usage", "%s: 0 to %lld, not '%s'", name,
				 (long long)max, text);
	return EXIT_OK;
}

/* Asks, and prints the answer's plain members. */
static int tell(struct cli *c, json_t *request)
{
	json_t *answer = NULL;
	int code = ask(c, request, &answer);

	if (!code)
		return cli_print(c, answer, NULL, NULL, 0);
	json_decref(answer);
	return code;
}

int cmd_listener_generation(struct cli *c, int argc, char **argv)
{
	json_int_t port = 0, generation = 0;
	int code;

	if (argc != 3 || strcmp(argv[0], "--port"))
		return cli_error(c, EXIT_USAGE, "usage", "--port P GENERATION is wanted");
	code = cli_port(c, argv[1], &port);
	if (!code)
		code = parse_number(c, "GENERATION", argv[2], UINT32_MAX, &generation);
	return code ? code : tell(c, json_pack("{s:s,s:I,s:I}", "verb", "generation", "port", port,
					       "generation", generation));
}

/* One of two words. */
static int parse_word(struct cli *c, json_t *request, const char *key, const char *value,
		      const char *one, const char *other)
{
	if (strcmp(value, one) && strcmp(value, other))
		return cli_error(c, EXIT_USAGE, "usage", "--%s: %s or %s, not '%s'", key, one, other,
				 value);
	json_object_set_new(request, key, json_string(value));
	return EXIT_OK;
}

static int parse_policy(struct cli *c, int argc, char **argv, json_t *request)
{
	json_int_t n = 0;
	int code = EXIT_OK;

	for (int i = 0; i + 1 < argc && !code; i += 2) {
		const char *name = argv[i], *value = argv[i + 1];

		if (!strcmp(name, "--port")) {
			code = cli_port(c, value, &n);
			json_object_set_new(request, "port", json_integer(n));
		} else if (!strcmp(name, "--new")) {
			code = parse_word(c, request, "new", value, "take", "wait");
		} else if (!strcmp(name, "--options")) {
			code = parse_word(c, request, "options", value, "alike", "any");
		} else if (!strcmp(name, "--pid")) {
			code = parse_number(c, "--pid", value, INT32_MAX, &n);
			json_object_set_new(request, "member", json_integer(n));
		} else if (!strcmp(name, "--weight")) {
			code = parse_number(c, "--weight", value, 1000, &n);
			json_object_set_new(request, "weight", json_integer(n));
		} else {
			code = cli_error(c, EXIT_USAGE, "usage", "'%s' is not understood", name);
		}
	}
	if (!code && (argc % 2 || !json_object_get(request, "port") ||
		      !json_object_get(request, "member") != !json_object_get(request, "weight")))
		code = cli_error(c, EXIT_USAGE, "usage",
				 "--port P [--new take|wait] [--options alike|any] "
				 "[--pid N --weight W] is wanted");
	return code;
}

int cmd_listener_policy(struct cli *c, int argc, char **argv)
{
	json_t *request = json_pack("{s:s}", "verb", "policy");
	int code = parse_policy(c, argc, argv, request);

	if (!code)
		return tell(c, request);
	json_decref(request);
	return code;
}
