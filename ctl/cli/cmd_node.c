// SPDX-License-Identifier: BSD-2-Clause
/* ferry node list: next hops as the datapath uses them, read from the pins. */
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <ferry/wire.h>
#include "cli/cli.h"

/* The device by that number here, where it is the one that the header was made for. */
static bool is_here(const struct ferry_template *t, char device[IF_NAMESIZE])
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = {};

	if (fd < 0 || !if_indextoname(t->ifindex, device))
		return false;
	memcpy(r.ifr_name, device, IF_NAMESIZE);
	return !ioctl(fd, SIOCGIFHWADDR, &r) && !memcmp(r.ifr_hwaddr.sa_data, t->header + 6, 6);
}

static json_t *node(struct cli *c, uint32_t number)
{
	const struct ferry_nexthop *nh = &c->view.nexthops[number];
	const struct ferry_template *t = &nh->template[nh->live ? nh->live - 1 : 0];
	bool v4 = t->length == 14 + FERRY_OUTER4;
	uint8_t addr[16] = { [10] = 0xff, 0xff };
	char text[ADDR_TEXT], device[IF_NAMESIZE] = "";

	memcpy(v4 ? addr + 12 : addr, t->header + 14 + (v4 ? 16 : 24), v4 ? 4 : 16);
	if (t->ifindex && !is_here(t, device)) /* of another namespace */
		snprintf(device, sizeof(device), "#%u", t->ifindex);
	return json_pack("{s:i, s:b, s:s, s:s, s:i, s:i}", "number", (int)number, "resolved",
			 nh->live != 0, "address", t->length ? addr_text(addr, text) : "", "device", device, "mtu",
			 (int)t->mtu, "room", (int)nexthop_room(&c->view, number));
}

int cmd_node_list(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "number", "NODE" },   { "resolved", "RESOLVED" }, { "address", "ADDRESS" },
		{ "device", "DEVICE" }, { "mtu", "MTU" },	    { "room", "ROOM" },
	};
	json_t *nodes;
	int r = argc ? cli_error(c, EXIT_USAGE, "usage", "no argument is wanted: %s", argv[0]) :
		       cli_view(c);

	if (r)
		return r;
	nodes = json_array();
	for (uint32_t i = 1; i < FERRY_NODES; i++)
		if (c->view.nexthops[i].node)
			json_array_append_new(nodes, node(c, i));
	return cli_print(c,
			 json_pack("{s:s, s:i, s:o}", "node", c->node, "number",
				   (int)c->view.control.node, "nodes", nodes),
			 "nodes", columns, ARRAY_SIZE(columns));
}
