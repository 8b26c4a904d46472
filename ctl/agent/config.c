// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads the configuration with inih. A key that is not known, or that is given twice, is an error;
 * what belongs together is checked once all is read.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include "agent/config.h"
#include "base/util.h"
#include "ferry/wire.h"
#include "pki/cert.h"

struct reader {
	struct config *c;
	FILE *file;
	int line;        /* that is being read or checked, 0 none */
	const char *key; /* that is being read */
	uint32_t fleet_keys;
	char error[256]; /* of the first line that is wrong */
	int error_line;
};

static int wrong(struct reader *r, const char *what, const char *value)
{
	if (r->error[0])
		return -EINVAL;
	snprintf(r->error, sizeof(r->error), value ? "%s%s%s '%s'" : "%s%s%s", r->key ? r->key : "",
		 r->key ? ": " : "", what, value);
	r->error_line = r->line;
	return -EINVAL;
}

static const char *const fleet_keys[] = { "vni", "tag", "packet", "pki", NULL };
static const char *const node_keys[] = { "number", "address", "port",     "interfaces",
					 "tunnel", "role",    "buckets4", "buckets6",
					 "stash",  "units",   NULL };
static const char *const service_keys[] = { "address", "port", "protocol", "node", NULL };
#define NODE_NEEDS 0x3U    /* number, address */
#define SERVICE_NEEDS 0xfU /* all */

/* A key of the section, for the first time in it. */
static int once(struct reader *r, const char *const keys[], const char *key, uint32_t *given)
{
	unsigned int i = 0;

	while (keys[i] && strcmp(keys[i], key))
		i++;
	if (!keys[i])
		return wrong(r, "no such key in its section", NULL);
	if (*given & 1U << i)
		return wrong(r, "given twice in its section", NULL);
	*given |= 1U << i;
	return 0;
}

static int number(struct reader *r, const char *value, uint32_t min, uint32_t max, uint32_t *to)
{
	char *end;
	unsigned long n = strtoul(value, &end, 0);

	if (!isdigit((unsigned char)*value) || *end || n < min || n > max) {
		char what[64];

		snprintf(what, sizeof(what), "a number from %u to %u is wanted, not", min, max);
		return wrong(r, what, value);
	}
	*to = (uint32_t)n;
	return 0;
}

static int power_of_two(struct reader *r, const char *value, uint32_t *to)
{
	int e = number(r, value, 2, 1U << 24, to);

	return e ? e : *to & (*to - 1) ? wrong(r, "a power of two is wanted, not", value) : 0;
}

static int words(struct reader *r, const char *value, char to[][IFNAMSIZ], unsigned int *n)
{
	_cleanup_free_ char *copy = strdup(value);
	char *rest = copy;

	*n = 0;
	for (char *word; rest && (word = strsep(&rest, " \t,"));) {
		if (!*word)
			continue;
		if (*n == CONFIG_INTERFACES || strlen(word) >= IFNAMSIZ)
			return wrong(r, "no list of at most 16 devices", value);
		strcpy(to[(*n)++], word);
	}
	return *n ? 0 : wrong(r, "a device is wanted, not", value);
}

static int addresses(struct reader *r, const char *value, struct config_node *node)
{
	_cleanup_free_ char *copy = strdup(value);
	char *rest = copy;

	node->addresses = 0;
	for (char *word; rest && (word = strsep(&rest, " \t,"));) {
		if (!*word)
			continue;
		if (node->addresses == 2 || addr_parse(word, node->address[node->addresses]))
			return wrong(r, "one address a family is wanted, not", value);
		node->addresses++;
	}
	if (node->addresses == 2 && addr_is_v4(node->address[0]) == addr_is_v4(node->address[1]))
		return wrong(r, "one address a family is wanted, not", value);
	return 0;
}

static int set_fleet(struct reader *r, const char *key, const char *value)
{
	struct config *c = r->c;

	if (!strcmp(key, "vni"))
		return number(r, value, 1, 0xffffff, &c->vni);
	if (!strcmp(key, "packet"))
		return number(r, value, 576, 65535, &c->packet);
	if (!strcmp(key, "pki")) {
		if (value[0] != '/' || strlen(value) >= sizeof(c->pki))
			return wrong(r, "the whole path of a directory is wanted, not", value);
		strcpy(c->pki, value);
		return 0;
	}
	if (strlen(value) != 16 || strspn(value, "0123456789abcdefABCDEF") != 16)
		return wrong(r, "16 hexadecimal digits are wanted, not", value);
	for (int i = 0; i < 8; i++)
		sscanf(value + 2 * i, "%2hhx", &c->tag[i]);
	return 0;
}

static int set_node(struct reader *r, struct config_node *n, const char *key, const char *value)
{
	uint32_t port;

	if (!strcmp(key, "number"))
		return number(r, value, 1, FERRY_NODES - 1, &n->number);
	if (!strcmp(key, "address"))
		return addresses(r, value, n);
	if (!strcmp(key, "port")) {
		int e = number(r, value, 1, 65535, &port);

		n->port = e ? n->port : (uint16_t)port;
		return e;
	}
	if (!strcmp(key, "interfaces"))
		return words(r, value, n->interfaces, &n->n_interfaces);
	if (!strcmp(key, "tunnel"))
		return words(r, value, n->tunnel, &n->n_tunnel);
	if (!strcmp(key, "role")) {
		n->ingress = !strcmp(value, "ingress");
		return n->ingress || !strcmp(value, "backend") ?
			       0 :
			       wrong(r, "ingress or backend is wanted, not", value);
	}
	if (!strcmp(key, "buckets4"))
		return power_of_two(r, value, &n->buckets4);
	if (!strcmp(key, "buckets6"))
		return power_of_two(r, value, &n->buckets6);
	if (!strcmp(key, "stash"))
		return number(r, value, 1, 1U << 20, &n->stash);
	return number(r, value, 2, 1U << FERRY_UNIT_BITS, &n->units);
}

static int set_service(struct reader *r, struct config_service *s, const char *key,
		       const char *value)
{
	uint32_t port;
	int e;

	if (!strcmp(key, "address"))
		return addr_parse(value, s->key.addr) ? wrong(r, "no address:", value) : 0;
	if (!strcmp(key, "port")) {
		e = number(r, value, 1, 65535, &port);
		s->key.port = e ? 0 : htons((uint16_t)port);
		return e;
	}
	if (!strcmp(key, "protocol")) {
		s->key.proto = !strcmp(value, "tcp") ? IPPROTO_TCP :
			       !strcmp(value, "udp") ? IPPROTO_UDP :
						       0;
		return s->key.proto ? 0 : wrong(r, "tcp or udp is wanted, not", value);
	}
	if (!name_valid(value))
		return wrong(r, "no node's name:", value);
	strcpy(s->node, value);
	return 0;
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
		return !once(r, fleet_keys, key, &r->fleet_keys) && !set_fleet(r, key, value);
	if (!strncmp(section, "node ", 5) && name_valid(section + 5)) {
		n = node_section(r->c, section + 5);
		if (n && !n->line)
			n->line = r->line;
		return n && !once(r, node_keys, key, &n->keys) && !set_node(r, n, key, value);
	}
	if (!strncmp(section, "service ", 8) && name_valid(section + 8)) {
		s = service_section(r->c, section + 8);
		if (s && !s->line)
			s->line = r->line;
		return s && !once(r, service_keys, key, &s->keys) && !set_service(r, s, key, value);
	}
	return !wrong(r, "no such section, or its name has other characters than a-zA-Z0-9._-:",
		      section);
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
		wrong(r, "too long a line:", line);
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
			return wrong(r, "number or address is missing in node", n->name);
		if (!strcmp(n->name, "ca"))
			return wrong(r, "in pki that is the authority's name, no node's:", n->name);
		for (unsigned int k = 0; k < i; k++)
			if (c->nodes[k].number == n->number || share_address(&c->nodes[k], n))
				return wrong(r, "number or address of another node has node",
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
			return wrong(r, "address, port, protocol or node is missing in service",
				     s->name);
		if (!n)
			return wrong(r, "no such node as that of service", s->name);
		for (unsigned int k = 0; k < i; k++)
			if (!memcmp(&c->services[k].key, &s->key, sizeof(s->key)))
				return wrong(r,
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
		return wrong(r, "no section for this node,", self);
	return c->self->n_interfaces ? 0 : wrong(r, "interfaces is missing in node", self);
}

int config_load(struct config *c, const char *path, const char *self, char *error, size_t size)
{
	struct reader r = { .c = c, .file = fopen(path, "re") };
	int line, failure;

	*c = (struct config){ .vni = FERRY_GENEVE_VNI, .packet = 1500, .pki = PKI_DIR };
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
