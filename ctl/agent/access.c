// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who may do what, see access.h. Bounds are halves and small numbers, not knobs: they are there
 * against one user's mistakes or malice, and whom the configuration names has none but the tables.
 */
#include <errno.h>
#include "agent/access.h"
#include "agent/app_io.h"
#include "base/log.h"
#include "base/util.h"

#define KINDS_MAX 64 /* of one bounded user */

uid_t app_uid(const struct app *app)
{
	return app->peer.uid;
}

bool access_bounded(const struct agent *a, uid_t uid)
{
	for (unsigned int i = 0; i < a->config.n_applications; i++)
		if (a->config.applications[i].uid == uid)
			return false;
	return uid && uid != geteuid();
}

int access_register(const struct app *app, const char *kind)
{
	const struct config_application *named = config_application(&app->agent->config, kind);
	unsigned int kinds = 0;
	int r = 0;

	for (const struct app *other = app->agent->apps; other; other = other->next)
		kinds += other->kind[0] && other->peer.uid == app->peer.uid;
	if (named && named->uid != app->peer.uid)
		r = -EACCES;
	else if (app_by_kind(app->agent, kind))
		r = -EEXIST;
	else if (kinds >= KINDS_MAX && access_bounded(app->agent, app->peer.uid))
		r = -EDQUOT;
	if (r)
		log_warning("uid %u (pid %d) may not register as '%s': %s", app->peer.uid,
			    app->peer.pid, kind,
			    r == -EACCES ? "the configuration names another user" :
			    r == -EEXIST ? "another process is" :
					   "it has as many kinds as one user may");
	return r;
}

int access_offer(struct agent *a, const struct unit *u)
{
	const struct table *t = &a->dp.flows;
	uint32_t units = 0, flows[2] = {};

	if (!access_bounded(a, u->uid))
		return 0;
	for (const struct unit *other = a->units; other; other = other->next) {
		units += other->uid == u->uid;
		for (unsigned int i = 0; other->uid == u->uid && i < other->count; i++)
			flows[flow_is_v6(&other->flows[i])]++;
	}
	if (units <= a->dp.control.units / 2 && flows[0] <= (table_room(t, false) + t->used4) / 2 &&
	    flows[1] <= (table_room(t, true) + t->used6) / 2)
		return 0;
	log_warning("uid %u holds half of what the tables hold: it may not offer more", u->uid);
	return -EDQUOT;
}

int access_command(int fd, const struct unit *u, const char *command)
{
	struct ucred who = { .uid = CONFIG_NOBODY };
	socklen_t size = sizeof(who);
	char uuid[UUID_TEXT];

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) &&
	    (!who.uid || who.uid == geteuid() || who.uid == app_uid(u->app)))
		return 0;
	log_warning("uid %u (pid %d) may not %s unit %s of uid %u", who.uid, who.pid, command,
		    uuid_text(u->uuid, uuid), app_uid(u->app));
	return -EACCES;
}

/* An account that is not here may be one of other nodes only: the file is the same on all. */
void access_check(const struct config *c)
{
	for (unsigned int i = 0; i < c->n_applications; i++)
		if (c->applications[i].uid == CONFIG_NOBODY)
			log_warning("application %s: its user is not known here: nobody can "
				    "register that kind",
				    c->applications[i].name);
}
