// SPDX-License-Identifier: BSD-2-Clause
/* What the configuration says of one node or one kind of application. */
#include <string.h>
#include "agent/config.h"

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

const struct config_application *config_application(const struct config *c, const char *kind)
{
	for (unsigned int i = 0; i < c->n_applications; i++)
		if (!strcmp(c->applications[i].name, kind))
			return &c->applications[i];
	return NULL;
}
