// SPDX-License-Identifier: BSD-2-Clause
/*
 * guard.conf: what is guarded from the start, a section [guard NAME] each:
 *   port     one or more
 *   program  whose listeners may join; without it, that of the first that listens
 *   netns    a file of its network namespace; without it, the agent's own
 * See guard.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "guard/guard.h"

#define PORTS 16

struct section {
	char name[64], program[4096], netns[4096];
	uint32_t ports[PORTS];
	unsigned int n;
};

struct reading {
	struct daemon *d;
	const char *path;
	struct section s;
	json_t *seen; /* sections, by name */
	bool wrong;
};

static int bad(struct reading *r, const char *what, const char *value)
{
	log_error("%s: [%s]: %s '%s'", r->path, r->s.name, what, value);
	r->wrong = true;
	return 1;
}

static int set_ports(struct reading *r, const char *value)
{
	const char *at = value;
	char *end;

	while (*at) {
		unsigned long n = strtoul(at, &end, 10);

		if (end == at || n < 1 || n > 65535 || r->s.n == PORTS)
			return bad(r, "port: one to 16 numbers from 1 to 65535 are wanted, not", value);
		r->s.ports[r->s.n++] = (uint32_t)n;
		at = end + strspn(end, " \t,");
	}
	return 1;
}

static void finish(struct reading *r)
{
	struct section *s = &r->s;
	const char *file = s->netns[0] ? s->netns : "/proc/self/ns/net";

	if (!s->name[0] || r->wrong)
		return;
	if (!s->n)
		bad(r, "no port is given for", s->name);
	for (unsigned int i = 0; i < s->n && !r->wrong; i++) {
		struct listener_port at = { .port = s->ports[i] };
		int netns = open(file, O_RDONLY | O_CLOEXEC);
		struct guard *g;

		if (netns < 0 || netns_cookie(r->d->netns, netns, &at.netns)) {
			bad(r, "netns: no network namespace:", file);
			close_fd(&netns);
			return;
		}
		g = guard_add(r->d, &at, netns, true);
		if (!g)
			bad(r, "cannot be guarded:", s->name);
		else if (s->program[0]) /* or what has been learned stays */
			snprintf(g->program, sizeof(g->program), "%s", s->program);
	}
}

static int on_key(void *user, const char *section, const char *key, const char *value)
{
	struct reading *r = user;

	if (strcmp(section, r->s.name)) {
		finish(r);
		memset(&r->s, 0, sizeof(r->s));
		snprintf(r->s.name, sizeof(r->s.name), "%s", section);
		json_object_set_new(r->seen, section, json_true());
		if (strncmp(section, "guard ", 6))
			return bad(r, "only sections [guard NAME] are known, not", section);
	}
	if (!strcmp(key, "port"))
		return set_ports(r, value);
	if (!strcmp(key, "program"))
		snprintf(r->s.program, sizeof(r->s.program), "%s", value);
	else if (!strcmp(key, "netns"))
		snprintf(r->s.netns, sizeof(r->s.netns), "%s", value);
	else
		return bad(r, "the keys are port, program and netns, there is no", key);
	return 1;
}

/* inih says nothing of a section without a key. */
static void find_empty(struct reading *r)
{
	_cleanup_free_ char *line = NULL;
	FILE *f = fopen(r->path, "re");
	size_t size = 0;

	while (f && getline(&line, &size, f) >= 0) {
		char *name = line + strspn(line, " \t");

		if (*name++ != '[')
			continue;
		name[strcspn(name, "]\n")] = 0;
		if (json_object_get(r->seen, name))
			continue;
		snprintf(r->s.name, sizeof(r->s.name), "%s", name);
		bad(r, "a section has no key:", name);
	}
	if (f)
		fclose(f);
}

int config_read(struct daemon *d, const char *path)
{
	struct reading r = { .d = d, .path = path, .seen = json_object() };
	int line = ini_parse(path, on_key, &r);

	if (!line) {
		finish(&r);
		find_empty(&r);
	}
	json_decref(r.seen);
	if (line < 0) {
		log_error("%s: %s", path, strerror(errno));
		return -ENOENT;
	}
	if (line > 0) {
		log_error("%s:%d: neither a section nor a key", path, line);
		return -EINVAL;
	}
	return r.wrong ? -EINVAL : 0;
}
