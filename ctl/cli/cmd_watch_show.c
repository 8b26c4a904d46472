// SPDX-License-Identifier: BSD-2-Clause
/* ferry watch show: what another process counts, or since when nobody does. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cli/watch.h"
#include "listener/account.h"

static void show_text(struct watch *w, const struct ledger_view *v)
{
	char begun[CLI_WHEN], since[CLI_WHEN], text[ACCOUNT_SENTENCE];

	cli_when(v->state.begun, begun);
	if (v->watching)
		printf("watching since %s (pid %u): %s\n", begun, v->state.pid,
		       account_sum(v->state.n, text));
	else
		printf("not watching since %s; from %s until then: %s\n", cli_when(v->since, since),
		       begun, account_sum(v->state.n, text));
	ledger_view_rows(v, watch_row, w);
	watch_say_doubts(&v->state);
}

static void show_json(struct watch *w, const struct ledger_view *v, const char *name)
{
	json_t *o = watch_counts(v->state.n);

	w->rows = json_array();
	ledger_view_rows(v, watch_row, w);
	json_object_set_new(o, "name", json_string(name));
	json_object_set_new(o, "watching", json_boolean(v->watching));
	json_object_set_new(o, "since_ns", json_integer((json_int_t)v->state.begun));
	json_object_set_new(o, "not_watching_since_ns",
			    v->watching ? json_null() : json_integer((json_int_t)v->since));
	json_object_set_new(o, "pid", json_integer(v->state.pid));
	json_object_set_new(o, "rows", w->rows);
	watch_put_doubts(o, &v->state);
	cli_print(w->cli, o, NULL, NULL, 0);
}

int cmd_watch_show(struct cli *c, int argc, char **argv)
{
	struct watch w = { .cli = c, .netns = watch_netns() };
	struct watch_arguments a;
	struct ledger_view v;
	int r = watch_parse(c, argc, argv, &a);

	if (!r && (a.clients || a.seconds))
		r = cli_error(c, EXIT_USAGE, "usage", "ferry watch show [--name NAME]");
	if (r)
		return r;
	r = ledger_view(a.name, &v);
	if (r == -ENOENT)
		return cli_error(c, EXIT_NOT_FOUND, "not-watching",
				 "nobody has watched since this machine was started: ferry watch "
				 "does (its --name is '%s' here)",
				 a.name);
	if (r)
		return cli_error(c, EXIT_FAILED, "no-ledger",
				 LEDGER_ROOT "/%s cannot be read: %s; %s", a.name, strerror(-r),
				 r == -EPROTO ? "another version of ferry has made it" : "be root");
	if (c->json)
		show_json(&w, &v, a.name);
	else
		show_text(&w, &v);
	ledger_view_close(&v);
	return v.watching ? EXIT_OK : EXIT_DEGRADED;
}
