// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-http: an HTTP/1.1 server whose connections move in mid-transfer, for stock clients (curl).
 * GET /bytes/N?seed=S answers with N octets that are a function of seed and offset only; the same
 * come from `probe-http --print N SEED`, to compare with.
 *
 * Serves no files.
 *
 * Invariant: a connection's state says all that its next octet depends on (http.h).
 */
#include "http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"

static const char *const role = "tcp0";

static struct http_conn *of_unit(struct unit *u)
{
	return container_of(u, struct http_conn, unit);
}

static void offer(struct app *a, struct unit *u)
{
	app_offer(a, u, &of_unit(u)->source.fd, &role, 1);
}

static void accepted(struct app *a, int fd, const union address *from)
{
	struct http_conn *c = http_conn_new(a, fd, random_id());
	char text[ADDRESS_TEXT];

	if (!c) {
		close(fd);
		return;
	}
	app_unit_add(a, &c->unit);
	app_event("accepted", "\"id\":%" PRIu64 ",\"from\":\"%s\"", c->unit.id,
		  address_text(from, text));
	offer(a, &c->unit);
	http_conn_go(c);
}

static void stop(struct app *a, struct unit *u)
{
	loop_watch(a->loop, &of_unit(u)->source, 0);
}

static void go(struct app *a, struct unit *u)
{
	(void)a;
	http_conn_go(of_unit(u));
}

static void save(struct app *a, const struct unit *u, struct blob *b)
{
	const struct http_conn *c = container_of(u, struct http_conn, unit);

	(void)a;
	blob_put_u64(b, c->sent);
	blob_put_u64(b, c->n);
	blob_put_u64(b, c->seed);
	blob_put_u32(b, c->close);
	blob_put_u32(b, c->closing);
	blob_put_u64(b, c->requests);
	blob_put_u32(b, (uint32_t)(c->head_len - c->head_off));
	blob_put(b, c->head + c->head_off, c->head_len - c->head_off);
	blob_put_u32(b, (uint32_t)c->in_len);
	blob_put(b, c->in, c->in_len);
}

/* A length, at most max, and so many octets. */
static size_t load_octets(struct blob_reader *r, char *out, size_t max)
{
	uint32_t n = blob_get_u32(r);

	if (n > max)
		r->bad = 1;
	if (r->bad)
		return 0;
	blob_get(r, out, n);
	return n;
}

static struct unit *load(struct app *a, struct ferry_unit *fu, struct blob_reader *r)
{
	struct http_conn *c;

	if (ferry_unit_count(fu) != 1)
		return NULL;
	c = http_conn_new(a, ferry_unit_fd(fu, 0), 0);
	if (!c)
		return NULL;
	c->sent = blob_get_u64(r);
	c->n = blob_get_u64(r);
	c->seed = blob_get_u64(r);
	c->close = blob_get_u32(r);
	c->closing = blob_get_u32(r);
	c->requests = blob_get_u64(r);
	c->head_len = load_octets(r, c->head, sizeof(c->head));
	c->in_len = load_octets(r, c->in, sizeof(c->in));
	if (r->bad || c->sent > c->n) {
		free(c);
		return NULL;
	}
	app_pace(a, c->source.fd);
	return &c->unit;
}

static void destroy(struct app *a, struct unit *u)
{
	source_close(a->loop, &of_unit(u)->source);
	free(of_unit(u));
}

static const struct app_ops ops = {
	.accepted = accepted,
	.offer = offer,
	.stop = stop,
	.go = go,
	.save = save,
	.load = load,
	.destroy = destroy,
};

static int print(const char *n_text, const char *seed_text)
{
	static uint8_t chunk[65536];
	uint64_t n, seed;

	if (!seed_text || number_parse(&n, n_text, HTTP_BODY_MAX) ||
	    number_parse(&seed, seed_text, UINT64_MAX))
		return 2;
	for (uint64_t at = 0; at < n;) {
		size_t part = n - at < sizeof(chunk) ? (size_t)(n - at) : sizeof(chunk);

		pattern_fill(chunk, part, seed, at);
		if (fwrite(chunk, 1, part, stdout) != part)
			return EXIT_FAILURE;
		at += part;
	}
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

enum { OPT_PRINT = APP_OPTION_END };

static const struct option options[] = {
	APP_OPTIONS,
	{ "print", required_argument, NULL, OPT_PRINT },
	{ 0 },
};

int main(int argc, char **argv)
{
	static struct app a;
	int option;

	app_init(&a, &ops, "http");
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == OPT_PRINT)
			return print(optarg, argv[optind]);
		if (!app_option(&a, option, optarg))
			continue;
		fputs("usage: probe-http --listen ADDR --port P [OPTION]...\n"
		      "       probe-http --print N SEED\n" APP_USAGE,
		      stderr);
		return 2;
	}
	return app_run(&a);
}
