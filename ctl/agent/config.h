/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ini files describe the fleet, a node finds itself in them by its name: FILE, then what is in
 * FILE.d and ends in ".conf", in the order of the names. A later file's key replaces an earlier
 * one's.
 *
 *   [fleet]                       vni, tag (16 hex digits), packet (largest client packet, octets),
 *                                 pki (directory of this node's certificate)
 *   [node NAME]                   number, address (one or two, one a family), port (of the agent),
 *                                 interfaces (programs go there), tunnel (GENEVE is accepted
 *                                 there; default: all of them), role (ingress: it learns where
 *                                 every moved unit lives; backend), buckets4, buckets6, stash,
 *                                 units
 *   [service NAME]                address, port, protocol (tcp, udp), node, deliver (lo: the agent
 *                                 adds the address there; route: the host has routed it to a
 *                                 network namespace of the application's own)
 *   [application KIND]            user (who alone may register it)
 *   [application KIND]            user (who alone may register that kind)
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <ferry/map.h>
#include "base/util.h"

#define CONFIG_INTERFACES 16
#define CONFIG_NAME NODE_NAME
#define CONFIG_PATH 200  /* a line has no more */
#define CONFIG_KEYS 16   /* a section */
#define CONFIG_ERRORS 20 /* that are told at once */

/* Where something was said: a file of those that were read, from 0, and a line; 0: nowhere. */
struct config_place {
	unsigned int file;
	int line;
};

/* Each section's struct begins with its name and this. */
struct config_section {
	struct config_place at;
	struct config_place given[CONFIG_KEYS]; /* its keys, in the order of config_keys.c */
	bool wrong;                             /* something in it is, and has been told */
};

struct config_node {
	char name[CONFIG_NAME];
	struct config_section section;
	uint32_t number;
	uint8_t address[2][16]; /* the first is the agent's and the tunnel's */
	unsigned int addresses;
	uint16_t port; /* host order */
	bool ingress;
	char interfaces[CONFIG_INTERFACES][IFNAMSIZ];
	char tunnel[CONFIG_INTERFACES][IFNAMSIZ];
	unsigned int n_interfaces, n_tunnel;
	uint32_t buckets4, buckets6, stash, units;
};

struct config_service {
	char name[CONFIG_NAME];
	struct config_section section;
	struct ferry_service_key key;
	char node[CONFIG_NAME];
	uint32_t hop;
	bool route; /* to a network namespace of its application's, by the host's doing */
};

#define CONFIG_NOBODY UINT32_MAX /* the uid of a user that this machine does not know */
struct config_application {
	char name[CONFIG_NAME]; /* the kind */
	struct config_section section;
	uint32_t uid; /* who alone may register it */
};

struct config {
	char name[CONFIG_NAME]; /* [fleet] has none */
	struct config_section section;
	uint32_t vni;
	uint8_t tag[8];
	uint32_t packet;
	char pki[CONFIG_PATH];
	struct config_node *nodes;
	unsigned int n_nodes;
	struct config_service *services;
	unsigned int n_services;
	struct config_application *applications;
	unsigned int n_applications;
	unsigned int drop_ins;
	const struct config_node *self;
};

/* 0; -errno where a file cannot be read; -EINVAL where one says something wrong. error: a sentence
 * with file, line and key, of the first that is wrong, and how many more there are. */
int config_load(struct config *c, const char *path, const char *self, char *error, size_t size);
/* Says on out that it is right, or on err each error, a line each. self NULL: judged for every
 * node. 0, or -errno as config_load(). */
int config_check(const char *path, const char *self, FILE *out, FILE *err);
void config_free(struct config *c);
const struct config_node *config_node_by_name(const struct config *c, const char *name);
const struct config_node *config_node_by_number(const struct config *c, uint32_t number);
/* NULL: the configuration names nobody for the kind. */
const struct config_application *config_application(const struct config *c, const char *kind);

#endif
