// SPDX-License-Identifier: BSD-2-Clause
/*
 * Offers and withdrawals, see unit.h. An offer of flows that nobody holds any more takes up what an
 * earlier unit has left of them.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "agent/access.h"
#include "agent/app.h"
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "move/unit.h"
#include "repair/repair.h"

struct unit *unit_make(unsigned int count)
{
	struct unit *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->count = count;
	u->flows = calloc(count, sizeof(*u->flows));
	u->roles = calloc(count, sizeof(*u->roles));
	u->cookies = calloc(count, sizeof(*u->cookies));
	if (u->flows && u->roles && u->cookies)
		return u;
	unit_unmake(NULL, u);
	return NULL;
}

void unit_unmake(struct agent *a, struct unit *u)
{
	if (!u)
		return;
	space_release(a, u->space);
	free(u->flows);
	free(u->roles);
	free(u->cookies);
	free(u);
}

void unit_enter(struct agent *a, struct unit *u, struct app *app, uint32_t handle)
{
	u->app = app;
	u->uid = app ? app_uid(app) : CONFIG_NOBODY;
	u->handle = handle;
	u->since_ns = boottime_ns();
	if (app)
		u->space = space_again(app_space(app));
	u->next = a->units;
	a->units = u;
}

struct unit *unit_new(struct agent *a, struct app *app, uint32_t handle, unsigned int count)
{
	struct unit *u = unit_make(count);

	if (u)
		unit_enter(a, u, app, handle);
	return u;
}

static struct unit **bucket(struct agent *a, uint32_t index)
{
	return &a->by_index[index % UNIT_BUCKETS];
}

void unit_place(struct agent *a, struct unit *u, uint32_t index)
{
	struct unit **first = bucket(a, index);

	u->index = index;
	u->next_in_bucket = *first;
	*first = u;
}

struct unit *unit_by_index(struct agent *a, uint32_t index)
{
	struct unit *u = *bucket(a, index);

	while (u && u->index != index)
		u = u->next_in_bucket;
	return u;
}

void unit_forget(struct agent *a, struct unit *u)
{
	struct unit **at = &a->units, **in = bucket(a, u->index);

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	while (*in && *in != u) /* it may have no place yet */
		in = &(*in)->next_in_bucket;
	if (*in)
		*in = u->next_in_bucket;
	unit_unmake(a, u);
}

struct unit *unit_find(struct agent *a, const uint8_t uuid[16])
{
	for (struct unit *u = a->units; u; u = u->next)
		if (!memcmp(u->uuid, uuid, 16))
			return u;
	return NULL;
}

uint64_t socket_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
	return cookie;
}

uint64_t socket_netns(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size);
	return cookie;
}

int unit_deliver(struct agent *a, struct unit *u)
{
	for (unsigned int i = 0; i < u->count; i++) {
		int r = space_deliver(a, u->space, u->flows[i].daddr);

		if (!r)
			continue;
		while (i)
			space_undeliver(a, u->space, u->flows[--i].daddr);
		return r;
	}
	u->delivered = true;
	return 0;
}

void unit_undeliver(struct agent *a, struct unit *u)
{
	for (unsigned int i = 0; u->delivered && i < u->count; i++)
		space_undeliver(a, u->space, u->flows[i].daddr);
	u->delivered = false;
}

struct drop {
	uint32_t index;
	struct ferry_flow flows[FERRY_UNIT_SOCKETS];
	unsigned int count, wanted;
};

static int collect(const struct ferry_flow *flow, uint32_t unit, void *arg)
{
	struct drop *d = arg;

	if (unit == d->index && d->count < FERRY_UNIT_SOCKETS)
		d->flows[d->count++] = *flow;
	return d->count == d->wanted; /* then the walk ends */
}

void unit_drop(struct agent *a, uint32_t index)
{
	struct drop d = { .index = index, .wanted = unit_record(&a->dp, index)->flows };

	table_walk(&a->dp.flows, collect, &d);
	for (unsigned int i = 0; i < d.count; i++)
		table_delete(&a->dp.flows, &d.flows[i]);
	unit_free(&a->dp, index);
}

/* In a network namespace of their own anybody may make a socket of any name: it takes over only
 * what was in that very namespace. */
static bool same_space(const struct agent *a, uint32_t held, const struct unit *u,
		       const struct unit *by)
{
	return u ? u->space == by->space :
		   by->space->own || unit_record(&a->dp, held)->netns == by->space->cookie;
}

/* Given up; or of another socket, which has ended though its application has not noticed yet: a
 * namespace has one socket a tuple. One in a move, of an earlier agent too, is neither. */
static bool is_over(struct agent *a, const struct unit *u, const struct ferry_flow *flow,
		    uint64_t cookie)
{
	return !u->move && FERRY_WORD_STATE(unit_word(&a->dp, u->index)) == FERRY_LOCAL &&
	       (!u->app ||
		(u->count == 1 && flow->proto == IPPROTO_TCP && u->cookies[0] != cookie));
}

/* The entry that this flow has here already: one of an earlier connection may go (a tombstone, or a
 * unit that is over), and its epoch is the one to be above; what lives here or is in a move keeps
 * the flow. */
static int may_take_over(struct agent *a, const struct unit *by, unsigned int i, uint32_t *epoch)
{
	const struct ferry_flow *flow = &by->flows[i];
	uint32_t held = table_find(&a->dp.flows, flow);
	uint64_t word = held ? unit_word(&a->dp, held) : 0;
	uint32_t state = FERRY_WORD_STATE(word);
	struct unit *u = held ? unit_by_index(a, held) : NULL;

	if (!held)
		return 0;
	if (!same_space(a, held, u, by))
		return -EEXIST;
	if (u ? !is_over(a, u, flow, by->cookies[i]) :
		state != FERRY_REMOTE && state != FERRY_GONE && state != FERRY_FREE)
		return -EEXIST;
	if (FERRY_NEWER(FERRY_WORD_EPOCH(word), *epoch))
		*epoch = FERRY_WORD_EPOCH(word);
	return 0;
}

/* Only once all of its flows may be. */
static void take_over(struct agent *a, const struct unit *by)
{
	for (unsigned int i = 0; i < by->count; i++) {
		uint32_t held = table_find(&a->dp.flows, &by->flows[i]);
		struct unit *u = held ? unit_by_index(a, held) : NULL;

		if (u)
			unit_withdraw(a, u);
		else if (held)
			unit_drop(a, held);
	}
}

/* The unit that lives here with exactly these flows and that no application holds: of an earlier
 * agent, or given up and not ended. 0 none. */
static uint32_t adoptable(struct agent *a, const struct unit *by)
{
	uint32_t held = table_find(&a->dp.flows, &by->flows[0]);
	struct unit *u = held ? unit_by_index(a, held) : NULL;

	if (!held || FERRY_WORD_STATE(unit_word(&a->dp, held)) != FERRY_LOCAL ||
	    unit_record(&a->dp, held)->flows != by->count || !same_space(a, held, u, by) ||
	    (u && (u->app || u->move)))
		return 0;
	for (unsigned int i = 1; i < by->count; i++)
		if (table_find(&a->dp.flows, &by->flows[i]) != held)
			return 0;
	return held;
}

/* It keeps its uuid and its entries, here and on the other nodes, which hear of its next epoch: to
 * forget it and begin anew would leave its packets without an owner in between. */
static void adopt(struct agent *a, struct unit *u, uint32_t held)
{
	struct ferry_record *r = unit_record(&a->dp, held);
	struct unit *old = unit_by_index(a, held);
	uint64_t word = unit_word(&a->dp, held);
	uint32_t epoch = FERRY_WORD_EPOCH(word) + 1;

	if (old) {
		unit_undeliver(a, old);
		unit_forget(a, old);
	}
	memcpy(u->uuid, r->uuid, 16);
	r->app = (uint64_t)app_pid(u->app);
	unit_place(a, u, held);
	u->moved = r->role != FERRY_ROLE_NONE;
	while (!unit_swap(&a->dp, held, word, FERRY_WORD(epoch, FERRY_LOCAL, 0))) {
		word = unit_word(&a->dp, held); /* the datapath raised it */
		epoch = FERRY_WORD_EPOCH(word) + 1;
	}
	if (u->moved)
		converge_tell(a, u->uuid, u->flows, u->count, epoch, a->config.self->number, 0);
}

static int refuse(const char **refusal, const char *id)
{
	*refusal = id;
	return -EINVAL;
}

bool flows_differ(const struct ferry_flow *flows, unsigned int count)
{
	for (unsigned int i = 1; i < count; i++)
		for (unsigned int k = 0; k < i; k++)
			if (!memcmp(&flows[k], &flows[i], sizeof(flows[i])))
				return false;
	return true;
}

static int identify(struct unit *u, const int *fds, const struct ferry_app_socket *sockets,
		    const char **refusal)
{
	for (unsigned int i = 0; i < u->count; i++) {
		struct repair_image image = {};
		int r = repair_check(fds[i], &image, refusal);

		if (r)
			return r;
		if (socket_netns(fds[i]) != u->space->cookie)
			return refuse(refusal, "other-netns");
		u->flows[i] = image.flow;
		u->cookies[i] = socket_cookie(fds[i]);
		memcpy(u->roles[i], sockets[i].role, sizeof(u->roles[i]) - 1);
	}
	return flows_differ(u->flows, u->count) ? 0 : refuse(refusal, "flow-owned");
}

/* Word and record first, then the flows. All or nothing. */
static int enter(struct agent *a, struct unit *u, uint32_t epoch, const char **refusal)
{
	uint32_t index = unit_alloc(&a->dp);
	struct ferry_record *r;
	unsigned int done = 0;
	int e = 0;

	if (!index)
		return refuse(refusal, "table-full");
	unit_place(a, u, index);
	r = unit_record(&a->dp, u->index);
	memcpy(r->uuid, u->uuid, 16);
	r->flows = u->count;
	r->app = (uint64_t)app_pid(u->app);
	r->netns = u->space->cookie;
	r->device = space_device(a, u->space, u->flows[0].daddr);
	unit_swap(&a->dp, u->index, 0, FERRY_WORD(epoch, FERRY_LOCAL, 0));
	for (; done < u->count; done++) {
		e = table_insert(&a->dp.flows, &u->flows[done], u->index);
		if (e)
			break;
	}
	if (!e)
		return 0;
	while (done--)
		table_delete(&a->dp.flows, &u->flows[done]);
	unit_free(&a->dp, u->index);
	return refuse(refusal, e == -EEXIST ? "flow-owned" : "table-full");
}

int unit_offer(struct agent *a, struct app *app, uint32_t handle, const int *fds,
	       const struct ferry_app_socket *sockets, unsigned int count, struct unit **ret,
	       const char **refusal)
{
	struct unit *u = unit_new(a, app, handle, count);
	uint32_t epoch = 0, held = 0;
	int r;

	if (!u)
		return refuse(refusal, "no-memory");
	r = random_bytes(u->uuid, sizeof(u->uuid)) ? refuse(refusal, "no-memory") :
						     identify(u, fds, sockets, refusal);
	r = r || !access_offer(a, u) ? r : refuse(refusal, "user-limit");
	held = r ? 0 : adoptable(a, u);
	for (unsigned int i = 0; !r && !held && i < count; i++)
		if (may_take_over(a, u, i, &epoch))
			r = refuse(refusal, "flow-owned");
	if (!r && unit_deliver(a, u))
		r = refuse(refusal, "addr-unavailable");
	if (!r && held) {
		adopt(a, u, held);
	} else if (!r) {
		take_over(a, u);
		r = enter(a, u, epoch + 1, refusal);
	}
	if (r) {
		unit_undeliver(a, u);
		unit_forget(a, u);
		return r;
	}
	*ret = u;
	return 0;
}

void unit_give_up(struct unit *u)
{
	u->app = NULL;
	u->since_ns = boottime_ns();
}

void unit_withdraw(struct agent *a, struct unit *u)
{
	converge_forget(a, u->uuid, FERRY_WORD_EPOCH(unit_word(&a->dp, u->index)));
	unit_undeliver(a, u);
	for (unsigned int i = 0; i < u->count; i++)
		table_delete(&a->dp.flows, &u->flows[i]);
	unit_free(&a->dp, u->index);
	unit_forget(a, u);
}
