// SPDX-License-Identifier: BSD-2-Clause
/*
 * The configuration as a whole: what belongs together is judged once all is read (config_read.c),
 * and then it is taken, or what is wrong is told. A section in which something is wrong already is
 * not judged, nor is anything where a whole section was not understood: what they lack follows
 * from that.
 */
#include <errno.h>
#include <string.h>
#include "agent/config_reader.h"
#include "ferry/wire.h"
#include "pki/cert.h"

/* Whether a section has its mandatory keys; a sentence for each that it has not. */
static bool complete(struct reader *r, const struct section_kind *kind, const char *name,
		     struct config_section *s)
{
	if (s->wrong)
		return false;
	for (const struct key *k = kind->keys; k->name; k++) {
		if (!k->needed || s->given[k - kind->keys].line)
			continue;
		config_wrong(r, s->at, "%s is missing in [%s %s]", k->name, kind->word, name);
		s->wrong = true;
	}
	return !s->wrong;
}

static bool share_address(const struct config_node *a, const struct config_node *b)
{
	for (unsigned int i = 0; i < a->addresses; i++)
		for (unsigned int k = 0; k < b->addresses; k++)
			if (!memcmp(a->address[i], b->address[k], 16))
				return true;
	return false;
}

static bool has_interface(const struct config_node *n, const char *device)
{
	for (unsigned int i = 0; i < n->n_interfaces; i++)
		if (!strcmp(n->interfaces[i], device))
			return true;
	return false;
}

/* own: its agent is to run by this file. */
static void check_node(struct reader *r, struct config_node *n, bool own)
{
	const struct config *c = r->c;

	for (const struct config_node *other = c->nodes; other < n; other++) {
		if (other->section.wrong)
			continue;
		if (other->number == n->number)
			config_wrong(r, n->section.at,
				     "[node %s] and [node %s] have the same number", n->name,
				     other->name);
		if (share_address(other, n))
			config_wrong(r, n->section.at, "[node %s] and [node %s] share an address",
				     n->name, other->name);
	}
	if (!strcmp(n->name, "ca"))
		config_wrong(r, n->section.at, "[node ca]: in pki that is the authority's name");
	if (own && !n->n_interfaces)
		config_wrong(r, n->section.at, "interfaces is missing in [node %s]", n->name);
	for (unsigned int i = 0; n->n_interfaces && i < n->n_tunnel; i++)
		if (!has_interface(n, n->tunnel[i]))
			config_wrong(r, n->section.at,
				     "tunnel: %s is not of the interfaces of [node %s]",
				     n->tunnel[i], n->name);
	if (!n->n_tunnel) {
		memcpy(n->tunnel, n->interfaces, sizeof(n->tunnel));
		n->n_tunnel = n->n_interfaces;
	}
}

static void check_service(struct reader *r, struct config_service *s)
{
	const struct config *c = r->c;
	const struct config_node *n = config_node_by_name(c, s->node);

	if (n)
		s->hop = n->number;
	else
		config_wrong(r, s->section.at,
			     "[service %s] is of node %s, and there is no [node %s]", s->name,
			     s->node, s->node);
	for (const struct config_service *other = c->services; other < s; other++)
		if (!other->section.wrong && !memcmp(&other->key, &s->key, sizeof(s->key)))
			config_wrong(r, s->section.at,
				     "[service %s] and [service %s] have the same "
				     "address, port and protocol",
				     s->name, other->name);
}

/* self NULL: every node is to run by this file. */
static void check(struct reader *r, const char *self)
{
	struct config *c = r->c;
	struct config_place whole = {};

	c->self = self ? config_node_by_name(c, self) : NULL;
	if (self && !c->self)
		config_wrong(r, whole, "there is no [node %s], and that is this node", self);
	if (!self && !c->n_nodes)
		config_wrong(r, whole, "there is no [node NAME]");
	for (unsigned int i = 0; i < c->n_nodes; i++) {
		struct config_node *n = &c->nodes[i];

		if (complete(r, &config_kinds[SECTION_NODE], n->name, &n->section))
			check_node(r, n, !self || n == c->self);
	}
	for (unsigned int i = 0; i < c->n_services; i++) {
		struct config_service *s = &c->services[i];

		if (complete(r, &config_kinds[SECTION_SERVICE], s->name, &s->section))
			check_service(r, s);
	}
	for (unsigned int i = 0; i < c->n_applications; i++)
		complete(r, &config_kinds[SECTION_APPLICATION], c->applications[i].name,
			 &c->applications[i].section);
}

static int load(struct reader *r, const char *path, const char *self)
{
	struct config *c = r->c;
	int e;

	*c = (struct config){ .vni = FERRY_GENEVE_VNI, .packet = 1500, .pki = PKI_DIR };
	e = config_read(r, path);
	if (!e && !r->lost)
		check(r, self);
	c->drop_ins = r->n_files ? r->n_files - 1 : 0;
	e = e ? e : r->n_errors ? -EINVAL : 0;
	if (e)
		config_free(c);
	config_read_end(r);
	return e;
}

int config_load(struct config *c, const char *path, const char *self, char *error, size_t size)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	int e;

	if (!r) {
		snprintf(error, size, "%s cannot be read: %s", path, strerror(ENOMEM));
		return -ENOMEM;
	}
	r->c = c;
	e = load(r, path, self);
	if (e && !r->n_errors)
		snprintf(error, size, "%s cannot be read: %s", path, strerror(-e));
	else if (e && r->n_errors == 1)
		snprintf(error, size, "%s", r->errors[0]);
	else if (e)
		snprintf(error, size, "%s (and %u more: ferryd --check tells them)", r->errors[0],
			 r->n_errors - 1);
	return e;
}

int config_check(const char *path, const char *self, FILE *out, FILE *err)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	struct config c;
	int e;

	if (!r)
		return -ENOMEM;
	r->c = &c;
	e = load(r, path, self);
	for (unsigned int i = 0; i < r->n_errors && i < CONFIG_ERRORS; i++)
		fprintf(err, "%s\n", r->errors[i]);
	if (r->n_errors > CONFIG_ERRORS)
		fprintf(err, "%s: %u more errors\n", path, r->n_errors - CONFIG_ERRORS);
	if (e && !r->n_errors)
		fprintf(err, "%s cannot be read: %s\n", path, strerror(-e));
	if (e)
		return e;
	fprintf(out, "%s: ok: %u nodes, %u services", path, c.n_nodes, c.n_services);
	fprintf(out, c.drop_ins ? ", %u drop-ins\n" : "\n", c.drop_ins);
	config_free(&c);
	return 0;
}

void config_free(struct config *c)
{
	free(c->nodes);
	free(c->services);
	free(c->applications);
	memset(c, 0, sizeof(*c));
}
