// SPDX-License-Identifier: BSD-2-Clause
/*
 * The sections of the configuration and their keys: a row a key, with what sets it and the range
 * of its value. It knows no files, and of a section no other than the one that a key is in. A key's
 * place in its table is its place in the section's given[], and no table is longer than that.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <string.h>
#include "agent/config_reader.h"
#include "agent/rights.h"
#include "ferry/wire.h"

static int number_of(struct reader *r, const struct key *k, const char *value, uint32_t *to)
{
	/* not 0: a zero in front would make it octal */
	int base = !strncasecmp(value, "0x", 2) ? 16 : 10;
	char *end;
	unsigned long n = strtoul(value, &end, base);

	if (!isdigit((unsigned char)*value) || *end || n < k->min || n > k->max)
		return config_wrong(r, r->at, "a number from %u to %u is wanted, not '%s'", k->min,
				    k->max, value);
	*to = (uint32_t)n;
	return 0;
}

static int set_number(struct reader *r, const struct key *k, const char *value, void *section)
{
	return number_of(r, k, value, (uint32_t *)((char *)section + k->offset));
}

static int set_power_of_two(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint32_t n;
	int e = number_of(r, k, value, &n);

	if (e)
		return e;
	if (n & (n - 1))
		return config_wrong(r, r->at, "a power of two from %u to %u is wanted, not '%s'",
				    k->min, k->max, value);
	memcpy((char *)section + k->offset, &n, sizeof(n));
	return 0;
}

static int set_tag(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint8_t *tag = (uint8_t *)section + k->offset;

	if (strlen(value) != 16 || strspn(value, "0123456789abcdefABCDEF") != 16)
		return config_wrong(r, r->at, "16 hexadecimal digits are wanted, not '%s'", value);
	for (int i = 0; i < 8; i++)
		sscanf(value + 2 * i, "%2hhx", &tag[i]);
	return 0;
}

/* One that a host can have: not unspecified, multicast or broadcast. */
static int host_address(const char *text, uint8_t addr[16])
{
	static const uint8_t none[16];
	bool v4;

	if (addr_parse(text, addr))
		return -EINVAL;
	v4 = addr_is_v4(addr);
	if (v4 ? !memcmp(addr + 12, none, 4) || addr[12] >= 224 :
		 !memcmp(addr, none, 16) || addr[0] == 0xff)
		return -EINVAL;
	return 0;
}

static int set_addresses(struct reader *r, const struct key *k, const char *value, void *section)
{
	struct config_node *n = section;
	_cleanup_free_ char *copy = strdup(value);
	char *rest = copy;
	bool fits = copy;

	(void)k;
	n->addresses = 0;
	for (char *word; fits && rest && (word = strsep(&rest, " \t,"));)
		if (*word)
			fits = n->addresses < 2 && !host_address(word, n->address[n->addresses++]);
	if (!fits || !n->addresses ||
	    (n->addresses == 2 && addr_is_v4(n->address[0]) == addr_is_v4(n->address[1])))
		return config_wrong(r, r->at, "one address a host can have, or one of each family, "
					      "is wanted, not '%s'",
				    value);
	return 0;
}

static int devices(struct reader *r, const char *value, char to[][IFNAMSIZ], unsigned int *n)
{
	_cleanup_free_ char *copy = strdup(value);
	char *rest = copy;
	bool fits = copy;

	*n = 0;
	for (char *word; fits && rest && (word = strsep(&rest, " \t,"));) {
		if (!*word)
			continue;
		fits = *n < CONFIG_INTERFACES && strlen(word) < IFNAMSIZ;
		if (fits)
			strcpy(to[(*n)++], word);
	}
	if (!fits || !*n)
		return config_wrong(r, r->at, "1 to %u devices, of 1 to %u octets each, are "
					      "wanted, not '%s'",
				    CONFIG_INTERFACES, IFNAMSIZ - 1, value);
	return 0;
}

static int set_interfaces(struct reader *r, const struct key *k, const char *value, void *section)
{
	struct config_node *n = section;

	(void)k;
	return devices(r, value, n->interfaces, &n->n_interfaces);
}

static int set_tunnel(struct reader *r, const struct key *k, const char *value, void *section)
{
	struct config_node *n = section;

	(void)k;
	return devices(r, value, n->tunnel, &n->n_tunnel);
}

static int set_role(struct reader *r, const struct key *k, const char *value, void *section)
{
	bool ingress = !strcmp(value, "ingress");

	if (!ingress && strcmp(value, "backend"))
		return config_wrong(r, r->at, "ingress or backend is wanted, not '%s'", value);
	memcpy((char *)section + k->offset, &ingress, sizeof(ingress));
	return 0;
}

static int set_port(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint32_t n;
	int e = number_of(r, k, value, &n);

	if (!e)
		memcpy((char *)section + k->offset, &(uint16_t){ (uint16_t)n }, 2);
	return e;
}

static int set_net_port(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint32_t n;
	int e = number_of(r, k, value, &n);

	if (!e)
		memcpy((char *)section + k->offset, &(uint16_t){ htons((uint16_t)n) }, 2);
	return e;
}

static int set_address(struct reader *r, const struct key *k, const char *value, void *section)
{
	if (host_address(value, (uint8_t *)section + k->offset))
		return config_wrong(r, r->at, "an address a host can have is wanted, not '%s'",
				    value);
	return 0;
}

static int set_path(struct reader *r, const struct key *k, const char *value, void *section)
{
	if (value[0] != '/' || strlen(value) >= CONFIG_PATH)
		return config_wrong(r, r->at, "the whole path of a directory is wanted, not '%s'",
				    value);
	strcpy((char *)section + k->offset, value);
	return 0;
}

static int set_protocol(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint8_t proto = !strcmp(value, "tcp") ? IPPROTO_TCP :
			!strcmp(value, "udp") ? IPPROTO_UDP :
						0;

	if (!proto)
		return config_wrong(r, r->at, "tcp or udp is wanted, not '%s'", value);
	memcpy((char *)section + k->offset, &proto, 1);
	return 0;
}

static int set_deliver(struct reader *r, const struct key *k, const char *value, void *section)
{
	bool route = !strcmp(value, "route");

	if (!route && strcmp(value, "lo"))
		return config_wrong(r, r->at, "lo or route is wanted, not '%s'", value);
	memcpy((char *)section + k->offset, &route, sizeof(route));
	return 0;
}

static int set_name(struct reader *r, const struct key *k, const char *value, void *section)
{
	if (!name_valid(value))
		return config_wrong(r, r->at, "the name of a node is wanted, not '%s'", value);
	strcpy((char *)section + k->offset, value);
	return 0;
}

static int set_user(struct reader *r, const struct key *k, const char *value, void *section)
{
	uint32_t uid = CONFIG_NOBODY;

	if (user_number(value, &uid)) {
		const struct passwd *pw = name_valid(value) ? getpwnam(value) : NULL;

		if (!name_valid(value))
			return config_wrong(r, r->at, "a user's name or number is wanted, not '%s'",
					    value);
		uid = pw ? pw->pw_uid : CONFIG_NOBODY; /* access_check() says so */
	}
	memcpy((char *)section + k->offset, &uid, sizeof(uid));
	return 0;
}

/* name, what sets it, least, most, where, whether it is mandatory */
#define AT(type, field) offsetof(struct type, field)
static const struct key fleet_keys[] = {
	{ "vni", set_number, 1, 0xffffff, AT(config, vni), false },
	{ "tag", set_tag, 0, 0, AT(config, tag), false },
	{ "packet", set_number, 576, 65535, AT(config, packet), false },
	{ "pki", set_path, 0, 0, AT(config, pki), false },
	{}
};
static const struct key node_keys[] = {
	{ "number", set_number, 1, FERRY_NODES - 1, AT(config_node, number), true },
	{ "address", set_addresses, 0, 0, 0, true },
	{ "port", set_port, 1, 65535, AT(config_node, port), false },
	{ "interfaces", set_interfaces, 0, 0, 0, false }, /* for its own agent only: config.c */
	{ "tunnel", set_tunnel, 0, 0, 0, false },
	{ "role", set_role, 0, 0, AT(config_node, ingress), false },
	{ "buckets4", set_power_of_two, 2, 1U << 24, AT(config_node, buckets4), false },
	{ "buckets6", set_power_of_two, 2, 1U << 24, AT(config_node, buckets6), false },
	{ "stash", set_number, 1, 1U << 20, AT(config_node, stash), false },
	{ "units", set_number, 2, 1U << FERRY_UNIT_BITS, AT(config_node, units), false },
	{}
};
static const struct key service_keys[] = {
	{ "address", set_address, 0, 0, AT(config_service, key.addr), true },
	{ "port", set_net_port, 1, 65535, AT(config_service, key.port), true },
	{ "protocol", set_protocol, 0, 0, AT(config_service, key.proto), true },
	{ "node", set_name, 0, 0, AT(config_service, node), true },
	{ "deliver", set_deliver, 0, 0, AT(config_service, route), false },
	{}
};
static const struct key application_keys[] = {
	{ "user", set_user, 0, 0, AT(config_application, uid), true },
	{}
};
_Static_assert(ARRAY_SIZE(node_keys) - 1 <= CONFIG_KEYS, "given[] has room for each");
_Static_assert(AT(config, section) == CONFIG_NAME && AT(config_node, section) == CONFIG_NAME &&
		       AT(config_service, section) == CONFIG_NAME &&
		       AT(config_application, section) == CONFIG_NAME,
	       "config_section() finds it");

/* list: at a pointer to n structs of that size, each of which begins with its section's name. */
static void *section_of(void *list, unsigned int *n, size_t size, const void *fresh,
			const char *name)
{
	char *all;

	memcpy(&all, list, sizeof(all));
	for (unsigned int i = 0; i < *n; i++)
		if (!strcmp(all + i * size, name))
			return all + i * size;
	all = realloc(all, size * (*n + 1));
	if (!all)
		return NULL;
	memcpy(list, &all, sizeof(all));
	all = memcpy(all + size * (*n)++, fresh, size);
	return strcpy(all, name);
}

static void *fleet_section(struct config *c, const char *name)
{
	(void)name;
	return c;
}

static void *node_section(struct config *c, const char *name)
{
	static const struct config_node fresh = {
		.port = 7946,
		.buckets4 = 16384,
		.buckets6 = 16384,
		.stash = 1024,
		.units = 65536,
	};

	return section_of(&c->nodes, &c->n_nodes, sizeof(fresh), &fresh, name);
}

static void *service_section(struct config *c, const char *name)
{
	static const struct config_service fresh;

	return section_of(&c->services, &c->n_services, sizeof(fresh), &fresh, name);
}

static void *application_section(struct config *c, const char *name)
{
	static const struct config_application fresh;

	return section_of(&c->applications, &c->n_applications, sizeof(fresh), &fresh, name);
}

const struct section_kind config_kinds[SECTIONS] = {
	[SECTION_FLEET] = { "fleet", fleet_keys, fleet_section, false },
	[SECTION_NODE] = { "node", node_keys, node_section, true },
	[SECTION_SERVICE] = { "service", service_keys, service_section, true },
	[SECTION_APPLICATION] = { "application", application_keys, application_section, true },
};
