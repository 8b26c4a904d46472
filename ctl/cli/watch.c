// SPDX-License-Identifier: BSD-2-Clause
/* What ferry watch and ferry watch show have in common, see watch.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "cli/watch.h"
#include "listener/account.h"

#define DEFAULT_NAME "watch"

uint64_t watch_netns(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size);
	return cookie;
}

int watch_parse(struct cli *c, int argc, char **argv, struct watch_arguments *a)
{
	*a = (struct watch_arguments){ .name = DEFAULT_NAME };
	for (int i = 0; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		char *end;

		if (!strcmp(argv[i], "--tuples")) {
			a->clients = true;
		} else if (!strcmp(argv[i], "--seconds")) {
			a->seconds = strtoul(value, &end, 10);
			if (!a->seconds || *end || a->seconds > UINT32_MAX)
				return cli_error(c, EXIT_USAGE, "usage",
						 "--seconds: 1 or more, not '%s'", value);
			i++;
		} else if (!strcmp(argv[i], "--name")) {
			if (!name_valid(value))
				return cli_error(c, EXIT_USAGE, "usage", "--name: no '%s'", value);
			a->name = argv[++i];
		} else {
			return cli_error(c, EXIT_USAGE, "usage",
					 "[--tuples] [--seconds N] [--name NAME] is wanted");
		}
	}
	return EXIT_OK;
}

json_t *watch_counts(const __u64 n[WITNESS_COUNT])
{
	json_t *o = json_object();

	for (int i = 0; i < WITNESS_COUNT; i++)
		json_object_set_new(o, account_counts[i], json_integer((json_int_t)n[i]));
	json_object_set_new(o, "lost", json_integer((json_int_t)account_lost(n)));
	return o;
}

void watch_put_address(json_t *o, const struct witness_key *key)
{
	char text[ADDR_TEXT];

	json_object_set_new(o, "netns", json_integer((json_int_t)key->netns));
	json_object_set_new(o, "address", json_string(addr_text(key->addr, text)));
	json_object_set_new(o, "port", json_integer(key->port));
}

json_t *watch_close(const struct witness_close *r)
{
	char comm[WITNESS_COMM + 1];
	json_t *o = watch_counts(r->n);

	account_comm(r->comm, comm);
	watch_put_address(o, &r->key);
	json_object_set_new(o, "socket", json_integer((json_int_t)r->cookie));
	json_object_set_new(o, "pid", json_integer(r->pid));
	json_object_set_new(o, "comm", json_string(comm));
	json_object_set_new(o, "way",
			    json_string(r->way < ARRAY_SIZE(account_ways) ? account_ways[r->way] :
									    ""));
	json_object_set_new(o, "at_ns", json_integer((json_int_t)r->at));
	return o;
}

void watch_row(const struct witness_close *row, void *data)
{
	struct watch *w = data;
	char where[ACCOUNT_ADDRESS], text[ACCOUNT_SENTENCE];

	if (w->rows)
		json_array_append_new(w->rows, watch_close(row));
	else if (row->n[WITNESS_QUEUED])
		printf("%s: %s\n", account_address(&row->key, w->netns, where),
		       account_sum(row->n, text));
}

void watch_put_doubts(json_t *o, const struct witness_state *s)
{
	json_object_set_new(o, "no_row", json_integer((json_int_t)s->no_row));
	json_object_set_new(o, "unseen", json_integer((json_int_t)s->unseen));
	json_object_set_new(o, "unsaid", json_integer((json_int_t)s->unsaid));
	json_object_set_new(o, "strays", json_integer((json_int_t)s->strays));
}

void watch_say_doubts(const struct witness_state *s)
{
	if (s->unseen)
		printf("%" PRIu64 " closes are not counted: too many at once\n",
		       (uint64_t)s->unseen);
	if (s->no_row)
		printf("%" PRIu64 " closes are in the sum only: more than %d addresses\n",
		       (uint64_t)s->no_row, WITNESS_ROWS);
	if (s->unsaid)
		printf("%" PRIu64 " sentences are missing: they came faster than they were read\n",
		       (uint64_t)s->unsaid);
	if (s->strays)
		printf("%" PRIu64 " connections were reset in no close that was seen\n",
		       (uint64_t)s->strays);
}
