// SPDX-License-Identifier: BSD-2-Clause
/*
 * Addresses, uuids and flows as text (ctl/base/util.h): what is printed reads back to the same
 * octets, what is not an address, a uuid or a flow is refused, however long it is.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/util.h"

struct row {
	const char *text;
	int result;
	const char *canonical; /* NULL: text */
};

static const struct row addresses[] = {
	{ "203.0.113.10", 0, NULL },
	{ "0.0.0.0", 0, NULL },
	{ "255.255.255.255", 0, NULL },
	{ "2001:db8::7", 0, NULL },
	{ "::", 0, NULL },
	{ "2001:DB8:0:0::7", 0, "2001:db8::7" },
	{ "::ffff:192.0.2.1", 0, "192.0.2.1" },
	{ "", -EINVAL, NULL },
	{ "203.0.113", -EINVAL, NULL },
	{ "203.0.113.256", -EINVAL, NULL },
	{ "203.0.113.10/24", -EINVAL, NULL },
	{ " 203.0.113.10", -EINVAL, NULL },
	{ "203.0.113.10 ", -EINVAL, NULL },
	{ "2001:db8::7%eth0", -EINVAL, NULL },
	{ "2001:db8:::7", -EINVAL, NULL },
	{ "localhost", -EINVAL, NULL },
};

static const struct row uuids[] = {
	{ "00112233-4455-6677-8899-aabbccddeeff", 0, NULL },
	{ "00112233445566778899AABBCCDDEEFF", 0, "00112233-4455-6677-8899-aabbccddeeff" },
	{ "", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeef", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeeff0", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeefg", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeef ", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeef\x10", -EINVAL, NULL },
	{ "------------------------------------", -EINVAL, NULL },
	{ "00112233-4455-6677-8899-aabbccddeeff-", -EINVAL, NULL },
};

static const struct row flows[] = {
	{ "tcp 198.51.100.7:40000 > 203.0.113.10:443", 0, NULL },
	{ "tcp [2001:db8::7]:40000 > [2001:db8:1::10]:443", 0, NULL },
	{ "udp 198.51.100.7:1 > 203.0.113.10:65535", 0, NULL },
	{ "udp * > 203.0.113.10:444", 0, NULL },
	{ "udp * > [2001:db8:1::10]:444", 0, NULL },
	{ "  tcp   198.51.100.7:40000  >  203.0.113.10:443", 0,
	  "tcp 198.51.100.7:40000 > 203.0.113.10:443" },
	{ "", -EINVAL, NULL },
	{ "tcp", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 < 203.0.113.10:443", -EINVAL, NULL },
	{ "sctp 198.51.100.7:40000 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp * > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 > *", -EINVAL, NULL },
	{ "tcp 198.51.100.7 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7: > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp :40000 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp : > :", -EINVAL, NULL },
	{ "tcp [:1 > [:1", -EINVAL, NULL },
	{ "tcp []:1 > []:1", -EINVAL, NULL },
	{ "tcp 198.51.100.7:65536 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:-1 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:+1 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:-18446744073709551615 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:99999999999999999999 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000x > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 > 203.0.113.10:443 more", -EINVAL, NULL },
	{ "tcp [2001:db8::7:40000 > [2001:db8:1::10]:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:0 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 > 203.0.113.10:0", -EINVAL, NULL },
	{ "udp 198.51.100.7:0 > 203.0.113.10:443", -EINVAL, NULL },
	{ "tcp 198.51.100.7:40000 > [2001:db8:1::10]:443", -EINVAL, NULL },
	{ "tcp [2001:db8::7]:40000 > 203.0.113.10:443", -EINVAL, NULL },
};

static int address(const char *text, char out[FLOW_TEXT])
{
	uint8_t addr[16];
	int r = addr_parse(text, addr);

	return r ? r : (addr_text(addr, out), 0);
}

static int uuid(const char *text, char out[FLOW_TEXT])
{
	uint8_t u[16];
	int r = uuid_parse_text(text, u);

	return r ? r : (uuid_text(u, out), 0);
}

static int flow(const char *text, char out[FLOW_TEXT])
{
	struct ferry_flow f;
	int r = flow_parse(text, &f);

	return r ? r : (flow_text(&f, out), 0);
}

static void walk(const struct row *rows, size_t n, int (*turn)(const char *, char out[FLOW_TEXT]))
{
	for (size_t i = 0; i < n; i++) {
		const struct row *row = &rows[i];
		char out[FLOW_TEXT] = "";
		int r = turn(row->text, out);

		if (r != row->result)
			fail_msg("'%s': %d, not %d (%s)", row->text, r, row->result, out);
		if (!r && strcmp(out, row->canonical ? row->canonical : row->text))
			fail_msg("'%s': '%s'", row->text, out);
	}
}

static void address_text(void **state)
{
	(void)state;
	walk(addresses, ARRAY_SIZE(addresses), address);
}

static void uuid_as_text(void **state)
{
	(void)state;
	walk(uuids, ARRAY_SIZE(uuids), uuid);
}

static void flow_as_text(void **state)
{
	(void)state;
	walk(flows, ARRAY_SIZE(flows), flow);
}

/* Nothing written is longer than its buffer, nothing read goes past the end of the text. */
static void flow_of_any_octets(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (int i = 0; i < 100000; i++) {
		static const char from[] = "tudcp 0123456789abf:.[]>*-+x\t";
		char text[200], out[FLOW_TEXT];
		struct ferry_flow f;
		size_t n = (seed = seed * 1103515245 + 12345) >> 16 & 127;

		for (size_t k = 0; k < n; k++)
			text[k] = from[((seed = seed * 1103515245 + 12345) >> 16) %
				       (sizeof(from) - 1)];
		text[n] = 0;
		if (!flow_parse(text, &f))
			assert_true(strlen(flow_text(&f, out)) < FLOW_TEXT);
	}
}

static void sockaddr_both_ways(void **state)
{
	static const struct {
		const char *addr;
		bool v6_socket;
		sa_family_t family;
	} rows[] = {
		{ "203.0.113.10", false, AF_INET },
		{ "203.0.113.10", true, AF_INET6 },
		{ "2001:db8::7", true, AF_INET6 },
		{ "2001:db8::7", false, AF_INET6 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint8_t addr[16], back[16];
		struct sockaddr_storage ss;
		uint16_t port = 0;
		socklen_t size;

		addr_parse(rows[i].addr, addr);
		size = addr_to_sockaddr(addr, htons(443), rows[i].v6_socket, &ss);
		printf("%s on a %s socket\n", rows[i].addr, rows[i].v6_socket ? "v6" : "v4");
		assert_int_equal(ss.ss_family, rows[i].family);
		assert_int_equal(size, ss.ss_family == AF_INET ? sizeof(struct sockaddr_in) :
								 sizeof(struct sockaddr_in6));
		assert_int_equal(addr_from_sockaddr(&ss, back, &port), 0);
		assert_memory_equal(addr, back, 16);
		assert_int_equal(port, htons(443));
	}
	assert_int_equal(addr_from_sockaddr(&(struct sockaddr_storage){ .ss_family = AF_UNIX },
					    (uint8_t[16]){ 0 }, &(uint16_t){ 0 }),
			 -EAFNOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(address_text),       cmocka_unit_test(uuid_as_text),
		cmocka_unit_test(flow_as_text),       cmocka_unit_test(flow_of_any_octets),
		cmocka_unit_test(sockaddr_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
