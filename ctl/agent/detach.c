// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferryd --detach: nothing of a node is left, and nothing of others is touched. Refused while
 * connections would break by it: those of units in mid-move, those that live here, whose packets
 * come in the tunnel or to an address that goes, those that have moved away and are reached through
 * here. What is attached to no device any more serves nobody, and is no reason.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "agent/detach.h"
#include "base/log.h"
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "move/unit.h"
#include "net/diag.h"
#include "net/rtnl.h"

#define NAMED 3 /* units that the sentence names */

enum { EXIT_NOTHING = 3 };

struct load {
	struct dataplane *dp;
	uint8_t *alive; /* by unit */
	unsigned int moving, here, away, entries;
	char named[NAMED * UUID_TEXT + 1];
};

int detach_filters(void *arg, uint32_t ifindex)
{
	return rtnl_filters(arg, ifindex);
}

/* A namespace that only its application could ask in: for as long as there is one. */
static bool has_socket(const struct load *l, const struct ferry_flow *flow, uint32_t unit)
{
	const struct ferry_record *r = unit_record(l->dp, unit);

	if (l->dp->control.netns && (uint32_t)r->netns != l->dp->control.netns)
		return !kill((pid_t)r->app, 0) || errno != ESRCH;
	return diag_has_socket(-1, flow) != 0;
}

/* A unit that lives here is in the way while the kernel has a socket of it. */
static int look_at_flow(const struct ferry_flow *flow, uint32_t unit, void *arg)
{
	struct load *l = arg;

	if (FERRY_WORD_STATE(unit_word(l->dp, unit)) == FERRY_LOCAL && !l->alive[unit])
		l->alive[unit] = has_socket(l, flow, unit);
	return 0;
}

static void name_unit(struct load *l, uint32_t unit)
{
	size_t used = strlen(l->named);
	char uuid[UUID_TEXT];

	if (l->moving + l->here + l->away + l->entries <= NAMED)
		snprintf(l->named + used, sizeof(l->named) - used, "%s%s", used ? " " : "",
			 uuid_text(unit_record(l->dp, unit)->uuid, uuid));
}

static void count(struct load *l)
{
	for (uint32_t i = 1; i < l->dp->control.units; i++) {
		uint32_t state = FERRY_WORD_STATE(unit_word(l->dp, i));
		bool ingress = unit_record(l->dp, i)->role == FERRY_ROLE_INGRESS;
		unsigned int *n = state == FERRY_FENCED || state == FERRY_PREPARED ||
						  state == FERRY_OPENING ?
					  &l->moving :
				  state == FERRY_REMOTE ? ingress ? &l->entries : &l->away :
				  l->alive[i]           ? &l->here :
							  NULL;

		if (!n)
			continue;
		++*n;
		name_unit(l, i);
	}
}

/* 0, or -EBUSY and said. */
static int refuse_loaded(struct dataplane *d, const char *node, bool force)
{
	_cleanup_free_ uint8_t *alive = d->words ? calloc(d->control.units, 1) : NULL;
	struct load l = { .dp = d, .alive = alive };

	if (!alive && force)
		return 0;
	if (!alive) {
		log_error(
			"cannot read the tables of node %s, so that what it carries is not known: "
			"detach it with the build that made them, or with --force",
			node);
		return -EBUSY;
	}
	table_walk(&d->flows, look_at_flow, &l);
	count(&l);
	if (!l.moving && !l.here && !l.away && !l.entries)
		return 0;
	log_line(
		force ? LOG_WARNING : LOG_ERR,
		"node %s carries connections that %s: units in mid-move: %u, served here: %u, moved "
		"away and reached through here: %u, sent on as an ingress: %u (%s%s); %s",
		node, force ? "break now" : "would break", l.moving, l.here, l.away, l.entries,
		l.named, l.moving + l.here + l.away + l.entries > NAMED ? " ..." : "",
		force ? "--force was given" :
			"move or end them, or give --force (ferry unit list shows them)");
	return force ? 0 : -EBUSY;
}

/* The agent that made it does not run: we hold the node's lock. */
static void remove_socket(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISSOCK(st.st_mode) && unlink(path))
		log_warning("cannot remove %s: %s", path, strerror(errno));
	run_dir_remove();
}

static int take_off(struct dataplane *d, struct rtnl *n, const char *node)
{
	int r = dataplane_detach_steer(d), addresses = 0;

	if (r) {
		log_error("%s", dataplane_error());
		return r;
	}
	if (d->home)
		addresses = rtnl_sweep(n, NULL, NULL);
	else
		log_warning(
			"no device of node %s is here: what addresses it may have on lo are only "
			"taken off in its own network namespace",
			node);
	if (addresses < 0) {
		log_error("cannot take the addresses of node %s off lo: %s; detach it again", node,
			  strerror(-addresses));
		return addresses;
	}
	r = dataplane_detach(d);
	if (r)
		log_error("%s", dataplane_error());
	else
		log_info("node %s is detached, %d addresses are off lo", node, addresses);
	return r;
}

static int detach(struct dataplane *d, struct rtnl *n, const char *node, bool force)
{
	int links = dataplane_attached(d, socket_netns(n->fd)), r;

	if (links < 0) {
		log_error("%s", dataplane_error());
		return links;
	}
	d->filters = detach_filters;
	d->filters_arg = n;
	r = links ? refuse_loaded(d, node, force) : 0;
	return r ? r : take_off(d, n, node);
}

int detach_node(const char *node, const char *socket, bool force)
{
	struct dataplane d;
	struct rtnl n;
	int r = dataplane_take(&d, node);

	if (r == -ENOENT) {
		log_info("node %s is not attached: nothing to detach", node);
		return EXIT_NOTHING;
	}
	if (r) {
		log_error("%s", dataplane_error());
	} else if ((r = rtnl_open(&n))) {
		log_error("cannot talk to rtnetlink: %s", strerror(-r));
	} else {
		r = detach(&d, &n, node, force);
		close_fd(&n.fd);
		if (!r)
			remove_socket(socket);
	}
	dataplane_close(&d);
	return r ? 1 : 0;
}
