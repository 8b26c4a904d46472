/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One ini file describes the fleet; a node finds itself in it by its name.
 *
 *   [fleet]                       vni, tag (16 hex digits), packet (largest client packet, octets),
 *                                 pki (directory of this node's certificate)
 *   [node NAME]                   number, address (one or two, one a family), port (of the agent),
 *                                 interfaces (programs go there), tunnel (GENEVE is accepted
 *                                 there; default: all of them), role (ingress: it learns where
 *                                 every moved unit lives; backend), buckets4, buckets6, stash,
 *                                 units
 *   [service NAME]                address, port, protocol (tcp, udp), node
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <ferry/map.h>
#include "base/util.h"

#define CONFIG_INTERFACES 16
#define CONFIG_NAME NODE_NAME
#define CONFIG_PATH 200 /* a line has no more */

struct config_node {
	char name[CONFIG_NAME];
	uint32_t number;
	uint8_t address[2][16]; /* the first is the agent's and the tunnel's */
	unsigned int addresses;
	uint16_t port; /* host order */
	bool ingress;
	char interfaces[CONFIG_INTERFACES][IFNAMSIZ];
	char tunnel[CONFIG_INTERFACES][IFNAMSIZ];
	unsigned int n_interfaces, n_tunnel;
	uint32_t buckets4, buckets6, stash, units;
	int line;      /* of its section's first key */
	uint32_t keys; /* that were given, a bit each */
};

struct config_service {
	char name[CONFIG_NAME];
	struct ferry_service_key key;
	char node[CONFIG_NAME];
	uint32_t hop;
	int line;
	uint32_t keys;
};

struct config {
	uint32_t vni;
	uint8_t tag[8];
	uint32_t packet;
	char pki[CONFIG_PATH];
	struct config_node *nodes;
	unsigned int n_nodes;
	struct config_service *services;
	unsigned int n_services;
	const struct config_node *self;
};

/* 0; -errno where the file cannot be read; -EINVAL where it says something wrong. error: a
 * sentence with file, line and key. A key that is given twice is wrong. */
int config_load(struct config *c, const char *path, const char *self, char *error, size_t size);
void config_free(struct config *c);
const struct config_node *config_node_by_name(const struct config *c, const char *name);
const struct config_node *config_node_by_number(const struct config *c, uint32_t number);

#endif
