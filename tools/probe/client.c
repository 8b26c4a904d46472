// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-client: a stock client of probe-server that streams both ways in many connections, checks
 * every octet, measures every silence, and writes it all into one JSON report.
 *
 * This file is its options; client_run.c runs it.
 *
 * Invariant: the exit status is 0 only when every connection ended politely with all counts right
 * (1: not so, 2: usage).
 */
#include "client.h"

#include <getopt.h>
#include <string.h>

enum {
	OPT_CONNECT = 256,
	OPT_PORT,
	OPT_UDP_PORT,
	OPT_UNITS,
	OPT_TCP,
	OPT_UDP,
	OPT_RATE,
	OPT_UDP_RATE,
	OPT_MAX_LEN,
	OPT_SECONDS,
	OPT_PAUSE_READ,
	OPT_BIND_ADDRESS,
	OPT_TIMEOUT,
	OPT_GAP_MIN,
	OPT_REPORT,
	OPT_IDLE,
};

static const struct option options[] = {
	{ "connect", required_argument, NULL, OPT_CONNECT },
	{ "port", required_argument, NULL, OPT_PORT },
	{ "udp-port", required_argument, NULL, OPT_UDP_PORT },
	{ "units", required_argument, NULL, OPT_UNITS },
	{ "tcp", required_argument, NULL, OPT_TCP },
	{ "udp", required_argument, NULL, OPT_UDP },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "udp-rate", required_argument, NULL, OPT_UDP_RATE },
	{ "max-len", required_argument, NULL, OPT_MAX_LEN },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "pause-read", required_argument, NULL, OPT_PAUSE_READ },
	{ "bind-address", required_argument, NULL, OPT_BIND_ADDRESS },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "gap-min-us", required_argument, NULL, OPT_GAP_MIN },
	{ "report", required_argument, NULL, OPT_REPORT },
	{ "idle", no_argument, NULL, OPT_IDLE },
	{ 0 },
};

static const char usage[] =
	"usage: probe-client --connect ADDR --port P [OPTION]...\n"
	"  --units N          default 1\n"
	"  --tcp T            TCP connections per unit (1..250, default 1)\n"
	"  --udp none|unconnected|connected  what UDP socket the server has for a unit\n"
	"  --udp-port Q       where the server's UDP socket is\n"
	"  --rate N           messages/s and connection; 0: as fast as possible; default 100\n"
	"  --udp-rate N       datagrams/s and unit; 0: none; default 100\n"
	"  --max-len N        longest message (64..65536, default 4096)\n"
	"  --seconds S        then stop; 0: by SIGTERM, SIGINT or a line `stop` on stdin\n"
	"  --pause-read MS/EVERY  of every EVERY ms do not read for MS\n"
	"  --bind-address ADDR    local address\n"
	"  --timeout MS       a silence so long is a break (default 10000)\n"
	"  --gap-min-us US    list silences from here on (default 1000)\n"
	"  --report FILE      the report goes there too\n"
	"  --idle             send nothing but HELLO and END\n";

static int parse_port(uint16_t *port, const char *text)
{
	uint64_t n;

	if (number_parse(&n, text, UINT16_MAX))
		return -1;
	*port = (uint16_t)n;
	return 0;
}

static int parse_udp(enum unit_udp *udp, const char *text)
{
	static const char *const names[] = { "none", "unconnected", "connected" };

	for (int i = UNIT_UDP_NONE; i <= UNIT_UDP_CONNECTED; i++) {
		if (!strcmp(text, names[i])) {
			*udp = (enum unit_udp)i;
			return 0;
		}
	}
	return -1;
}

static int parse_option(struct client *c, uint16_t *port, int option, const char *value)
{
	switch (option) {
	case OPT_CONNECT:
		return address_parse(&c->server, value, 0);
	case OPT_PORT:
		return parse_port(port, value);
	case OPT_UDP_PORT:
		return parse_port(&c->udp_port, value);
	case OPT_UNITS:
		return number_parse(&c->units, value, 60000) || !c->units;
	case OPT_TCP:
		return number_parse(&c->tcp, value, UNIT_TCP_MAX) || !c->tcp;
	case OPT_UDP:
		return parse_udp(&c->udp, value);
	case OPT_RATE:
		return number_parse(&c->rate, value, 1000000);
	case OPT_UDP_RATE:
		return number_parse(&c->udp_rate, value, 1000000);
	case OPT_MAX_LEN:
		return number_parse(&c->max_len, value, STREAM_MAX) || c->max_len < STREAM_MIN;
	case OPT_SECONDS:
		return number_parse(&c->seconds, value, UINT32_MAX);
	case OPT_PAUSE_READ:
		return pause_parse(&c->pause, value);
	case OPT_BIND_ADDRESS:
		c->bind = 1;
		return address_parse(&c->bind_address, value, 0);
	case OPT_TIMEOUT:
		return number_parse(&c->timeout_ms, value, UINT32_MAX);
	case OPT_GAP_MIN:
		return number_parse(&c->gap_min_us, value, UINT32_MAX);
	case OPT_REPORT:
		c->report = value;
		return 0;
	case OPT_IDLE:
		c->idle = 1;
		return 0;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static struct client c = {
		.units = 1, .tcp = 1, .rate = 100, .udp_rate = 100, .max_len = 4096,
		.timeout_ms = 10000, .gap_min_us = 1000,
	};
	uint16_t port = 0;
	int option, bad = 0;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		bad |= parse_option(&c, &port, option, optarg);
	if (bad || optind < argc || !port || !c.server.sa.sa_family ||
	    (c.udp != UNIT_UDP_NONE && !c.udp_port)) {
		fputs(usage, stderr);
		return 2;
	}
	address_set_port(&c.server, port);
	return client_run(&c);
}
