// SPDX-License-Identifier: BSD-2-Clause
/*
 * The keys of the configuration: which there are in a section, and what their values may be. It
 * knows no files and no other section than the one that a key is in.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "agent/config_reader.h"
#include "base/util.h"

const char *const config_fleet_keys[] = { "vni", "tag", "packet", NULL };
const char *const config_node_keys[] = { "number", "address", "port",     "interfaces",
					 "tunnel", "role",    "buckets4", "buckets6",
					 "stash",  "units",   NULL };
const char *const config_service_keys[] = { "address", "port", "protocol", "node", NULL };
/* A key of the section, for the first time in it. */
int config_once(struct reader *r, const char *const keys[], const char *key, uint32_t *given)
{
	unsigned int i = 0;

	while (keys[i] && strcmp(keys[i], key))
		i++;
	if (!keys[i])
		return config_wrong(r, "no such key in its section", NULL);
	if (*given & 1U << i)
		return config_wrong(r, "given twice in its section", NULL);
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
		return config_wrong(r, what, value);
	}
	*to = (uint32_t)n;
	return 0;
}

static int power_of_two(struct reader *r, const char *value, uint32_t *to)
{
	int e = number(r, value, 2, 1U << 24, to);

	return e               ? e :
	       *to & (*to - 1) ? config_wrong(r, "a power of two is wanted, not", value) :
				 0;
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
			return config_wrong(r, "no list of at most 16 devices", value);
		strcpy(to[(*n)++], word);
	}
	return *n ? 0 : config_wrong(r, "a device is wanted, not", value);
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
			return config_wrong(r, "one address a family is wanted, not", value);
		node->addresses++;
	}
	if (node->addresses == 2 && addr_is_v4(node->address[0]) == addr_is_v4(node->address[1]))
		return config_wrong(r, "one address a family is wanted, not", value);
	return 0;
}

int config_set_fleet(struct reader *r, const char *key, const char *value)
{
	struct config *c = r->c;

	if (!strcmp(key, "vni"))
		return number(r, value, 1, 0xffffff, &c->vni);
	if (!strcmp(key, "packet"))
		return number(r, value, 576, 65535, &c->packet);
	if (strlen(value) != 16 || strspn(value, "0123456789abcdefABCDEF") != 16)
		return config_wrong(r, "16 hexadecimal digits are wanted, not", value);
	for (int i = 0; i < 8; i++)
		sscanf(value + 2 * i, "%2hhx", &c->tag[i]);
	return 0;
}

int config_set_node(struct reader *r, struct config_node *n, const char *key, const char *value)
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
			       config_wrong(r, "ingress or backend is wanted, not", value);
	}
	if (!strcmp(key, "buckets4"))
		return power_of_two(r, value, &n->buckets4);
	if (!strcmp(key, "buckets6"))
		return power_of_two(r, value, &n->buckets6);
	if (!strcmp(key, "stash"))
		return number(r, value, 1, 1U << 20, &n->stash);
	return number(r, value, 2, 1U << FERRY_UNIT_BITS, &n->units);
}

int config_set_service(struct reader *r, struct config_service *s, const char *key,
		       const char *value)
{
	uint32_t port;
	int e;

	if (!strcmp(key, "address"))
		return addr_parse(value, s->key.addr) ? config_wrong(r, "no address:", value) : 0;
	if (!strcmp(key, "port")) {
		e = number(r, value, 1, 65535, &port);
		s->key.port = e ? 0 : htons((uint16_t)port);
		return e;
	}
	if (!strcmp(key, "protocol")) {
		s->key.proto = !strcmp(value, "tcp") ? IPPROTO_TCP :
			       !strcmp(value, "udp") ? IPPROTO_UDP :
						       0;
		return s->key.proto ? 0 : config_wrong(r, "tcp or udp is wanted, not", value);
	}
	if (!config_valid_name(value))
		return config_wrong(r, "no node's name:", value);
	strcpy(s->node, value);
	return 0;
}
