// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads the configuration with inih; config_keys.c knows the keys. A key that is not known, or that is given twice, is an error;
 * what belongs together is checked once all is read.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include "agent/config_reader.h"
#include "base/util.h"
#include "ferry/wire.h"

int config_wrong(struct reader *r, const char *what, const char *value)
{
	if (r->error[0])
		return -EINVAL;
	snprintf(r->error, sizeof(r->error), value ? "%s%s%s '%s'" : "%s%s%s", r->key ? r->key : "",
		 r->key ? ": " : "", what, value);
	r->error_line = r->line;
	return -EINVAL;
}

#define NODE_NEEDS 0x3U    /* number, address */
#define SERVICE_NEEDS 0xfU /* all */

bool config_valid_name(const char *name)
{
	size_t n = strspn(name,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n && !name[n] && n < CONFIG_NAME && name[0] != '.';
}

static struct config_node *node_section(struct config *c, const char *name)
{
	struct config_node *n;

	for (unsigned int i = 0; i < c->n_nodes; i++)
		if (!strcmp(c->nodes[i].name, name))
			return &c->nodes[i];
	n = realloc(c->nodes, sizeof(*n) * (c->n_nodes + 1));
	if (!n)
		return NULL;
	c->nodes = n;
	n += c->n_nodes++;
	*n = (struct config_node){
		.port = 7946,
		.buckets4 = 16384,
		.buckets6 = 16384,
		.stash = 1024,
		.units = 65536,
	};
	snprintf(n->name, sizeof(n->name), "%s", name);
	return n;
}

static struct config_service *service_section(struct config *c, const char *name)
{
	struct config_service *s;

	for (unsigned int i = 0; i < c->n_services; i++)
		if (!strcmp(c->services[i].name, name))
			return &c->services[i];
	s = realloc(c->services, sizeof(*s) * (c->n_services + 1));
	if (!s)
		return NULL;
	c->services = s;
	s += c->n_services++;
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s", name);
	return s;
}

/* inih: 0 is an error of this line. */
static int on_key(void *user, const char *section, const char *key, const char *value)
{
	struct reader *r = user;
	struct config_service *s;
	struct config_node *n;

	r->key = key;
	if (!strcmp(section, "fleet"))
		return !config_once(r, config_fleet_keys, key, &r->fleet_keys) &&
		       !config_set_fleet(r, key, value);
	if (!strncmp(section, "node ", 5) && config_valid_name(section + 5)) {
		n = node_section(r->c, section + 5);
		if (n && !n->line)
			n->line = r->line;
		return n && !config_once(r, config_node_keys, key, &n->keys) &&
		       !config_set_node(r, n, key, value);
	}
	if (!strncmp(section, "service ", 8) && config_valid_name(section + 8)) {
		s = service_section(r->c, section + 8);
		if (s && !s->line)
			s->line = r->line;
		return s && !config_once(r, config_service_keys, key, &s->keys) &&
		       !config_set_service(r, s, key, value);
	}
	return !config_wrong(
		r, "no such section, or its name has other characters than a-zA-Z0-9._-:", section);
}

/* inih knows the line only after the fact, and cuts one that is too long in two. */
static char *next_line(char *to, int size, void *arg)
{
	struct reader *r = arg;
	char *line = fgets(to, size, r->file);

	if (!line)
		return NULL;
	r->line++;
	r->key = NULL;
	if (!strchr(line, '\n') && !feof(r->file))
		config_wrong(r, "too long a line:", line);
	return line;
}

static bool share_address(const struct config_node *a, const struct config_node *b)
{
	for (unsigned int i = 0; i < a->addresses; i++)
		for (unsigned int k = 0; k < b->addresses; k++)
			if (!memcmp(a->address[i], b->address[k], 16))
				return true;
	return false;
}

static int check_nodes(struct reader *r)
{
	struct config *c = r->c;

	for (unsigned int i = 0; i < c->n_nodes; i++) {
		struct config_node *n = &c->nodes[i];

		r->line = n->line;
		if ((n->keys & NODE_NEEDS) != NODE_NEEDS || !n->addresses)
			return config_wrong(r, "number or address is missing in node", n->name);
		for (unsigned int k = 0; k < i; k++)
			if (c->nodes[k].number == n->number || share_address(&c->nodes[k], n))
				return config_wrong(r, "number or address of another node has node",
						    n->name);
		if (!n->n_tunnel) {
			memcpy(n->tunnel, n->interfaces, sizeof(n->tunnel));
			n->n_tunnel = n->n_interfaces;
		}
	}
	return 0;
}

static int check_services(struct reader *r)
{
	struct config *c = r->c;

	for (unsigned int i = 0; i < c->n_services; i++) {
		struct config_service *s = &c->services[i];
		const struct config_node *n = config_node_by_name(c, s->node);

		r->line = s->line;
		if (s->keys != SERVICE_NEEDS)
			return config_wrong(r,
					    "address, port, protocol or node is missing in service",
					    s->name);
		if (!n)
			return config_wrong(r, "no such node as that of service", s->name);
		for (unsigned int k = 0; k < i; k++)
			if (!memcmp(&c->services[k].key, &s->key, sizeof(s->key)))
				return config_wrong(
					r,
					"address, port and protocol of another service has "
					"service",
					s->name);
		s->hop = n->number;
	}
	return 0;
}

static int check(struct reader *r, const char *self)
{
	struct config *c = r->c;
	int e;

	r->key = NULL;
	e = check_nodes(r);
	e = e ? e : check_services(r);
	if (e)
		return e;
	r->line = 0;
	c->self = config_node_by_name(c, self);
	if (!c->self)
		return config_wrong(r, "no section for this node,", self);
	return c->self->n_interfaces ? 0 : config_wrong(r, "interfaces is missing in node", self);
}

int config_load(struct config *c, const char *path, const char *self, char *error, size_t size)
{
	struct reader r = { .c = c, .file = fopen(path, "re") };
	int line, failure;

	*c = (struct config){ .vni = FERRY_GENEVE_VNI, .packet = 1500 };
	line = r.file ? ini_parse_stream(next_line, &r, on_key, &r) : 0;
	failure = !r.file ? -errno : ferror(r.file) ? -EIO : line < 0 ? -ENOMEM : 0;
	if (r.file)
		fclose(r.file);
	if (failure) {
		snprintf(error, size, "cannot read %s: %s", path, strerror(-failure));
		config_free(c);
		return failure;
	}
	if (line && (!r.error[0] || line < r.error_line))
		snprintf(error, size, "%s:%d: no 'key = value'", path, line);
	else if (!r.error[0] && !check(&r, self))
		return 0;
	else if (r.error_line)
		snprintf(error, size, "%s:%d: %s", path, r.error_line, r.error);
	else
		snprintf(error, size, "%s: %s", path, r.error);
	config_free(c);
	return -EINVAL;
}

void config_free(struct config *c)
{
	free(c->nodes);
	free(c->services);
	memset(c, 0, sizeof(*c));
}

const struct config_node *config_node_by_name(const struct config *c, const char *name)
{
	for (unsigned int i = 0; i < c->n_nodes; i++)
		if (!strcmp(c->nodes[i].name, name))
			return &c->nodes[i];
	return NULL;
}

const struct config_node *config_node_by_number(const struct config *c, uint32_t number)
{
	for (unsigned int i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].number == number)
			return &c->nodes[i];
	return NULL;
}
