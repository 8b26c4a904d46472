// SPDX-License-Identifier: BSD-2-Clause
/* What the configuration says of one node or one kind of application. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "agent/config.h"
#include "agent/rights.h"

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
		if (!strcmp(c->applications[i].kind, kind))
			return &c->applications[i];
	return NULL;
}

int config_add_application(struct config *c, const char *kind, const char *user)
{
	struct config_application *app;
	const struct passwd *pw;

	if (config_application(c, kind))
		return -EEXIST;
	app = realloc(c->applications, sizeof(*app) * (c->n_applications + 1));
	if (!app)
		return -ENOMEM;
	c->applications = app;
	app += c->n_applications;
	snprintf(app->kind, sizeof(app->kind), "%s", kind);
	if (user_number(user, &app->uid)) {
		if (!config_valid_name(user))
			return -EINVAL;
		pw = getpwnam(user);
		app->uid = pw ? pw->pw_uid : CONFIG_NOBODY;
	}
	c->n_applications++;
	return 0;
}
