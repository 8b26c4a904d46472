// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the configuration says (ctl/agent/config.h): a good one is taken whole; each way of being
 * wrong is refused with file, line and key, before anything is set up; what was read is freed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "agent/config.h"
#include "base/util.h"

static const char good[] = "# a fleet of two\n"
			   "[fleet]\n"
			   "vni = 0x464552\n"
			   "tag = 0123456789aBcDeF\n"
			   "packet = 1400\n"
			   "\n"
			   "[node a]\n"
			   "number = 1\n"
			   "address = 192.0.2.1 2001:db8:f::1 ; both families\n"
			   "interfaces = eth0, eth1\n"
			   "tunnel = eth1\n"
			   "role = ingress\n"
			   "buckets4 = 1024\n"
			   "buckets6 = 2048\n"
			   "stash = 16\n"
			   "units = 1024\n"
			   "port = 7947\n"
			   "[node b]\n"
			   "number = 1023\n"
			   "address = 2001:db8:f::2\n"
			   "interfaces = eth0\n"
			   "[service web4]\n"
			   "address = 203.0.113.10\n"
			   "port = 443\n"
			   "protocol = tcp\n"
			   "node = b\n"
			   "[service web6]\n"
			   "address = 2001:db8:1::10\n"
			   "port = 443\n"
			   "protocol = udp\n"
			   "node = a\n";
/* line 33 on */
static const char applications[] = "[application web]\n"
				   "user = root\n"
				   "[application tunnel.2]\n"
				   "user = 64899\n"
				   "[application elsewhere]\n"
				   "user = no-such-user\n";

static char path[] = "/tmp/ferry-test-config-XXXXXX";

static int load(struct config *c, const char *text, size_t size, const char *self, char *error,
		size_t room)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
	error[0] = 0;
	return config_load(c, path, self, error, room);
}

static void a_good_file(void **state)
{
	char error[512];
	struct config c;
	uint8_t addr[16];
	const struct config_node *a, *b;

	(void)state;
	if (load(&c, good, sizeof(good) - 1, "a", error, sizeof(error)))
		fail_msg("%s", error);
	assert_int_equal(c.vni, 0x464552);
	assert_int_equal(c.packet, 1400);
	assert_memory_equal(c.tag, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
	assert_int_equal(c.n_nodes, 2);
	assert_int_equal(c.n_services, 2);
	a = config_node_by_name(&c, "a"), b = config_node_by_number(&c, 1023);
	assert_ptr_equal(a, c.self);
	assert_int_equal(a->number, 1);
	assert_int_equal(a->addresses, 2);
	addr_parse("192.0.2.1", addr);
	assert_memory_equal(a->address[0], addr, 16);
	addr_parse("2001:db8:f::1", addr);
	assert_memory_equal(a->address[1], addr, 16);
	assert_int_equal(a->n_interfaces, 2);
	assert_string_equal(a->interfaces[1], "eth1");
	assert_int_equal(a->n_tunnel, 1);
	assert_string_equal(a->tunnel[0], "eth1");
	assert_true(a->ingress);
	assert_int_equal(a->buckets4, 1024);
	assert_int_equal(a->buckets6, 2048);
	assert_int_equal(a->stash, 16);
	assert_int_equal(a->units, 1024);
	assert_int_equal(a->port, 7947);
	assert_string_equal(b->name, "b");
	assert_false(b->ingress);
	assert_int_equal(b->n_tunnel, 1); /* those of interfaces */
	assert_int_equal(b->port, 7946);
	assert_int_equal(c.services[0].hop, 1023);
	assert_int_equal(c.services[0].key.port, htons(443));
	assert_int_equal(c.services[0].key.proto, IPPROTO_TCP);
	assert_int_equal(c.services[1].hop, 1);
	assert_int_equal(c.services[1].key.proto, IPPROTO_UDP);
	assert_null(config_node_by_name(&c, "c"));
	assert_null(config_node_by_number(&c, 2));
	assert_null(config_application(&c, "web"));
	config_free(&c);
}

static void applications_and_their_users(void **state)
{
	char text[sizeof(good) + sizeof(applications)], error[512];
	struct config c;

	(void)state;
	strcpy(text, good);
	strcat(text, applications);
	if (load(&c, text, strlen(text), "a", error, sizeof(error)))
		fail_msg("%s", error);
	assert_int_equal(c.n_applications, 3);
	assert_int_equal(config_application(&c, "web")->uid, 0);
	assert_int_equal(config_application(&c, "tunnel.2")->uid, 64899);
	assert_int_equal(config_application(&c, "elsewhere")->uid, CONFIG_NOBODY);
	assert_null(config_application(&c, "we"));
	assert_null(config_application(&c, ""));
	config_free(&c);
	assert_null(c.applications);
}

static const struct {
	const char *name;
	const char *from, *to; /* a piece of the good file, replaced; from NULL: appended */
	int line;              /* 0: of the file as a whole */
	const char *says;      /* the key, and what is wrong */
} rows[] = {
	{ "no section", NULL, "[other]\nx = 1\n", 32,
	  "unknown section [other]: there are [fleet], [node NAME], [service NAME], "
	  "[application NAME]" },
	{ "a node without a name", NULL, "[node ]\nnumber = 3\n", 32,
	  "the name of a node is 1 to 31" },
	{ "a node of 32 octets", NULL, "[node 01234567890123456789012345678901]\nnumber = 3\n", 32,
	  "the name of a node is 1 to 31" },
	{ "a node of a path", NULL, "[node ../x]\nnumber = 3\n", 32, "the name of a node" },
	{ "a node with a dot in front", NULL, "[node ..]\nnumber = 3\n", 32, "the name of a node" },
	{ "no such key in [fleet]", "vni =", "vin =", 3,
	  "unknown key 'vin' in [fleet]: did you mean 'vni'?" },
	{ "no such key in [node]", "stash =", "stach =", 15,
	  "unknown key 'stach' in [node]: did you mean 'stash'?" },
	{ "no such key in [service]", "port = 443\nprotocol = tcp", "ports = 443\nprotocol = tcp",
	  24, "unknown key 'ports' in [service]: did you mean 'port'?" },
	{ "a key left out of a word", "address = 192", "adress = 192", 9,
	  "unknown key 'adress' in [node]: did you mean 'address'?" },
	{ "a key near to none", "stash =", "backlog =", 15,
	  "unknown key 'backlog' in [node]: its keys are number, address, port, interfaces, "
	  "tunnel, role, buckets4, buckets6, stash, units" },
	{ "a section near to one", "[service web4]", "[servise web4]", 22,
	  "unknown section [servise]: did you mean [service NAME]?" },
	{ "[fleet] with a name", "[fleet]", "[fleet x]", 2, "[fleet] has no name, here it is 'x'" },
	{ "a section and more", "[fleet]", "[fleet] x", 2, "no '[section]'" },
	{ "a section without keys", NULL, "[node c]\n", 32, "number is missing in [node c]" },
	{ "a key before any section", "# a fleet of two", "vni = 1", 1,
	  "a key before any section" },
	{ "no key before '='", "packet =", "=", 5, "unknown key ''" },
	{ "a key twice in [fleet]", "packet = 1400", "vni = 1", 5,
	  "vni: given twice in its section, first in /tmp/ferry-test-config-" },
	{ "no such key in [application]", NULL, "[application x]\nuid = 1\n", 33,
	  "unknown key 'uid' in [application]: " },
	{ "a user twice in [application]", NULL, "[application x]\nuser = 1\nuser = 2\n", 34,
	  "user: given twice" },
	{ "no user in [application]", NULL, "[application x]\nuser =\n", 33,
	  "user: a user's name or number" },
	{ "a user of no name", NULL, "[application x]\nuser = a/b\n", 33,
	  "user: a user's name or number" },
	{ "an application without a user", NULL, "[application x]\n", 32,
	  "user is missing in [application x]" },
	{ "an application of a path", NULL, "[application ../x]\nuser = 1\n", 32,
	  "the name of an application is" },
	{ "a key twice in [node]", "port = 7947", "number = 2", 17, "number: given twice" },
	{ "a node in two pieces, a key twice", NULL, "[node a]\nnumber = 1\n", 33,
	  "number: given twice" },
	{ "a key twice in [service]", "protocol = tcp", "port = 444", 25, "port: given twice" },
	{ "a continued line", "eth0, eth1\n", "eth0,\n  eth1\n", 11, "an indented line" },
	{ "no '='", "packet = 1400", "packet 1400", 5, "key = value" },
	{ "no ']'", "[node a]", "[node a", 7, "no '[section]'" },
	{ "the first wrong line is named", "vni = 0x464552\ntag =", "vni\ntag = x", 3,
	  "key = value" },
	{ "a word as a number", "number = 1\n", "number = one\n", 8, "number: a number" },
	{ "no number", "number = 1\n", "number =\n", 8, "number: a number" },
	{ "a number that octal would make right", "number = 1\n", "number = 01024\n", 8,
	  "number: a number" },
	{ "0x and no more", "number = 1\n", "number = 0x\n", 8, "number: a number" },
	{ "a number and more", "number = 1\n", "number = 1x\n", 8, "number: a number" },
	{ "a number of 0", "number = 1\n", "number = 0\n", 8, "number: a number" },
	{ "a number too large", "number = 1023", "number = 1024", 19, "number: a number" },
	{ "a negative number", "number = 1\n", "number = -1\n", 8, "number: a number" },
	{ "a negative number that wraps to 1", "number = 1\n", "number = -18446744073709551615\n",
	  8, "number: a number" },
	{ "a number beyond 64 bits", "number = 1\n", "number = 99999999999999999999\n", 8,
	  "number: a number" },
	{ "vni of 25 bits", "0x464552", "0x1000000", 3, "vni: a number" },
	{ "packet below 576", "packet = 1400", "packet = 575", 5, "packet: a number" },
	{ "port of 65536", "port = 7947", "port = 65536", 17, "port: a number" },
	{ "buckets no power of two", "buckets4 = 1024", "buckets4 = 1000", 13,
	  "buckets4: a power" },
	{ "one bucket", "buckets6 = 2048", "buckets6 = 1", 14, "buckets6: a number" },
	{ "one unit", "units = 1024", "units = 1", 16, "units: a number" },
	{ "more units than 24 bits", "units = 1024", "units = 16777217", 16, "units: a number" },
	{ "tag of 15 digits", "0123456789aBcDeF", "0123456789aBcDe", 4, "tag: 16 hexadecimal" },
	{ "tag with signs", "0123456789aBcDeF", "+1-2+3-4+5-6+7-8", 4, "tag: 16 hexadecimal" },
	{ "tag with 0x", "0123456789aBcDeF", "0x0x0x0x0x0x0x0x", 4, "tag: 16 hexadecimal" },
	{ "address of a name", "192.0.2.1 2001:db8:f::1", "localhost", 9, "address: one address" },
	{ "address with a length", "192.0.2.1 ", "192.0.2.1/24 ", 9, "address: one address" },
	{ "two addresses of a family", "2001:db8:f::1", "192.0.2.9", 9, "address: one address" },
	{ "three addresses", "2001:db8:f::1", "2001:db8:f::1 192.0.2.9", 9,
	  "address: one address" },
	{ "interface of 16 octets", "eth0, eth1", "eth4567890123456", 10,
	  "interfaces: 1 to 16 devices" },
	{ "17 interfaces", "eth0, eth1", "a b c d e f g h i j k l m n o p q", 10,
	  "interfaces: 1 to 16 devices" },
	{ "a line too long", "eth0, eth1",
	  "eth000000 eth000001 eth000002 eth000003 eth000004 eth000005 eth000006 eth000007 "
	  "eth000008 eth000009 eth000010 eth000011 eth000012 eth000013 eth000014                   "
	  "                                           eth000015",
	  10, "a line of more than 199 octets" },
	{ "no interface", "eth0, eth1", ",", 10, "interfaces: 1 to 16 devices" },
	{ "a tunnel that is no interface", "tunnel = eth1", "tunnel = eth2", 7,
	  "tunnel: eth2 is not of the interfaces of [node a]" },
	{ "no address of a host", "address = 203.0.113.10", "address = 224.0.0.1", 23,
	  "address: an address" },
	{ "an unspecified address", "2001:db8:f::2", "::", 20, "address: one address" },
	{ "a multicast address", "2001:db8:f::2", "ff02::1", 20, "address: one address" },
	{ "another role", "role = ingress", "role = leader", 12, "role: ingress or backend" },
	{ "another protocol", "protocol = tcp", "protocol = sctp", 25, "protocol: tcp or udp" },
	{ "service address", "203.0.113.10", "203.0.113", 23, "address: an address" },
	{ "service port 0", "port = 443\nprotocol = tcp", "port = 0\nprotocol = tcp", 24,
	  "port: a number" },
	{ "service node", "node = b", "node = b/c", 26, "node: the name of a node" },
	/* what belongs together */
	{ "node without number", "number = 1\n", "", 7,
	  "number is missing in [node a]" },
	{ "node without address", "address = 2001:db8:f::2\n", "", 18,
	  "address is missing in [node b]" },
	{ "node with an empty address", "= 2001:db8:f::2", "= ,", 20,
	  "address: one address" },
	{ "node numbers the same", "number = 1023", "number = 1", 18,
	  "[node b] and [node a] have the same number" },
	{ "second address the same", "2001:db8:f::2", "2001:db8:f::1", 18,
	  "[node b] and [node a] share an address" },
	{ "service without address", "address = 203.0.113.10\n", "", 22,
	  "address is missing in [service web4]" },
	{ "service without port", "port = 443\nprotocol = tcp", "protocol = tcp", 22,
	  "port is missing in [service web4]" },
	{ "service without protocol", "protocol = tcp\n", "", 22,
	  "protocol is missing in [service web4]" },
	{ "service without node", "node = b\n", "", 22, "node is missing in [service web4]" },
	{ "service of no node", "node = b", "node = c", 22, "[service web4] is of node c" },
	{ "the authority's name", "[node b]", "[node ca]", 18, "the authority's name" },
	{ "pki that is no whole path", "packet = 1400", "pki = pki", 5, "pki: the whole path" },
	{ "the same service twice", NULL,
	  "[service web]\naddress = 203.0.113.10\nport = 443\nprotocol = tcp\nnode = a\n", 32,
	  "[service web] and [service web4] have the same address" },
	{ "own node without interfaces", "interfaces = eth0, eth1\n", "", 7,
	  "interfaces is missing in [node a]" },
	{ "no node of ours", "[node a]", "[node c]", 0, "there is no [node a]" },
};

static void each_error_names_line_and_key(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[4096], error[512], where[256];
		const char *at = rows[i].from ? strstr(good, rows[i].from) :
						good + sizeof(good) - 1;
		struct config c;
		int n, r;

		assert_non_null(at);
		n = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, rows[i].to,
			     at + (rows[i].from ? strlen(rows[i].from) : 0));
		r = load(&c, text, (size_t)n, "a", error, sizeof(error));
		printf("%s: %s\n", rows[i].name, strchr(error, ':') ? strchr(error, ':') + 1 : "");
		assert_int_equal(r, -EINVAL);
		snprintf(where, sizeof(where), rows[i].line ? "%s:%d: " : "%s: ", path,
			 rows[i].line);
		if (strncmp(error, where, strlen(where)) || !strstr(error, rows[i].says))
			fail_msg("%s: '%s', not '%s...%s'", rows[i].name, error, where,
				 rows[i].says);
		assert_null(c.nodes);
		assert_null(c.services);
	}
}

/* Any octets: refused or taken, nothing read past the end, nothing leaked. */
static void any_octets(void **state)
{
	uint32_t seed = 7;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		char text[sizeof(good)], error[512];
		struct config c;

		memcpy(text, good, sizeof(good));
		for (int k = 0; k < 4; k++) {
			seed = seed * 1103515245 + 12345;
			text[(seed >> 16) % (sizeof(good) - 1)] = (char)(seed >> 8);
		}
		if (!load(&c, text, sizeof(good) - 1, "a", error, sizeof(error)))
			config_free(&c);
	}
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	close_fd(&fd);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_file),
		cmocka_unit_test(applications_and_their_users),
		cmocka_unit_test(each_error_names_line_and_key),
		cmocka_unit_test(any_octets),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
