/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An agent without a loop, a peer or a pin, on tables in plain memory, whose applications are
 * socket pairs and whose units have real sockets; for the tests of ctl/move/resume.h. Addresses
 * are 203.0.113.10 and 2001:db8::10 on lo, so that a second network namespace has the same ones.
 * A world opens and closes in one test, and counts descriptors.
 */
#ifndef RESUME_WORLD_H
#define RESUME_WORLD_H

#include "repair_world.h"
#include <dirent.h>
#include <sys/mman.h>
#include <bpf/bpf.h>
#include "agent/app_io.h"
#include "agent/space.h"
#include "move/move.h"

#define UNITS 64
#define BUCKETS 64
#define SELF 1
#define PEER 2
#define EPOCH 5 /* of a move: FENCED; PREPARED and REMOTE have the next */

static const uint8_t the_uuid[16] = "the unit's uuid", the_move[16] = "the move's uuid";
static const char *const service[2] = { "203.0.113.10", "2001:db8::10" };

struct side {
	struct app *app;
	int end; /* the application's */
};

struct world {
	struct agent a;
	struct config_node nodes[1];
	struct config_service services[2];
	struct side one, two;
	unsigned int before; /* descriptors */
};

static inline unsigned int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline int shell(const char *command)
{
	return system(command); /* of the namespace that the test is in */
}

/* One for the agent's, one to be a stranger in; both with the service's addresses. */
static int home, away;

static inline void enter_ns(int fd)
{
	assert_int_equal(setns(fd, CLONE_NEWNET), 0);
}

static inline int two_namespaces(void **state)
{
	int *fds[] = { &away, &home };

	for (int i = 0; i < 2; i++) {
		if (own_namespace(state) || shell("ip addr add 203.0.113.10/32 dev lo && "
						  "ip addr add 2001:db8::10/128 dev lo nodad"))
			return -1;
		*fds[i] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	}
	return 0;
}

static inline void open_app(struct world *w, struct side *s, const char *kind, uint64_t netns)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	s->app = calloc(1, sizeof(*s->app));
	s->end = fds[1];
	*s->app = (struct app){ .agent = &w->a, .fd = fds[0], .bundle = -1, .next = w->a.apps };
	s->app->peer = (struct ucred){ getpid(), 1000, 1000 };
	s->app->out_last = &s->app->out;
	snprintf(s->app->kind, sizeof(s->app->kind), "%s", kind);
	s->app->space = space_hold(&w->a, netns);
	w->a.apps = s->app;
}

/* As when its connection ends. */
static inline void close_app(struct world *w, struct side *s)
{
	struct app **at = &w->a.apps;

	if (!s->app)
		return;
	while (*at != s->app)
		at = &(*at)->next;
	*at = s->app->next;
	app_gone(s->app);
	close_fd(&s->app->fd);
	close_fd(&s->app->bundle);
	close_fd(&s->end);
	space_release(&w->a, s->app->space);
	free(s->app);
	s->app = NULL;
}

static inline int no_grace(void *arg)
{
	(void)arg;
	return 0;
}

static inline void open_tables(struct dataplane *d)
{
	d->control.units = UNITS;
	d->words = calloc(UNITS, sizeof(*d->words));
	d->records = calloc(UNITS, sizeof(*d->records));
	d->unit_freed = calloc(UNITS, 1);
	d->nexthops = calloc(FERRY_NODES, sizeof(*d->nexthops));
	d->lock = d->grace_inner = d->grace_outer = -1;
	d->flows = (struct table){
		.bucket4 = calloc(BUCKETS, sizeof(struct ferry_bucket4)),
		.bucket6 = calloc(BUCKETS, sizeof(struct ferry_bucket6)),
		.buckets4 = BUCKETS,
		.buckets6 = BUCKETS,
		.seed = 0x5eed,
		.stash = bpf_map_create(BPF_MAP_TYPE_HASH, "stash", sizeof(struct ferry_flow), 4, 8,
					NULL),
		.stash_max = 8,
		.grace = no_grace,
	};
	assert_true(d->flows.stash >= 0); /* needs CAP_BPF */
	assert_int_equal(table_init(&d->flows), 0);
}

static inline void world_open(struct world *w)
{
	struct agent *a = &w->a;

	memset(w, 0, sizeof(*w));
	w->before = descriptors();
	w->nodes[0].number = SELF;
	strcpy(w->nodes[0].name, "self");
	a->config.nodes = w->nodes;
	a->config.n_nodes = 1;
	a->config.self = &w->nodes[0];
	a->config.services = w->services;
	a->config.n_services = 2;
	for (int i = 0; i < 2; i++)
		assert_int_equal(addr_parse(service[i], w->services[i].key.addr), 0);
	assert_true(sd_event_new(&a->event) >= 0);
	open_tables(&a->dp);
	assert_int_equal(rtnl_open(&a->rtnl), 0);
	a->netns = socket_netns(a->rtnl.fd);
	assert_int_equal(nodes_start(a), 0);
	open_app(w, &w->one, "one", a->netns);
	open_app(w, &w->two, "two", a->netns);
}

static inline void world_close(struct world *w)
{
	struct agent *a = &w->a;

	close_app(w, &w->one);
	close_app(w, &w->two);
	for (struct move *m; (m = a->moves); move_free(m))
		while (m->vips)
			space_undeliver(a, m->space, m->images[--m->vips].flow.daddr);
	for (struct unit *u; (u = a->units); unit_forget(a, u))
		unit_undeliver(a, u);
	assert_null(a->spaces); /* each is let go as often as it was taken, and so are addresses */
	assert_null(a->vips);
	free(a->nodes);
	sd_event_unref(a->event);
	close_fd(&a->rtnl.fd);
	close_fd(&a->dp.flows.stash);
	free(a->dp.flows.bucket4);
	free(a->dp.flows.bucket6);
	table_close(&a->dp.flows);
	free(a->dp.words);
	free(a->dp.records);
	free(a->dp.unit_freed);
	free(a->dp.nexthops);
	assert_int_equal(descriptors(), w->before);
}

/* A connection to the service, over lo. */
static inline void pair_to_service(struct pair *p, bool v6)
{
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	p->listener = new_socket(v6 ? V6 : V4, SOCK_STREAM);
	assert_int_equal(addr_parse(service[v6], addr), 0);
	size = addr_to_sockaddr(addr, 0, v6, &ss);
	assert_int_equal(bind(p->listener, (struct sockaddr *)&ss, size), 0);
	assert_int_equal(listen(p->listener, 8), 0);
	p->client = new_socket(v6 ? V6 : V4, SOCK_STREAM);
	connect_to(p->client, p->listener);
	assert_true(ready(p->listener, POLLIN));
	p->server = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(p->server >= 0);
}

static inline int udp_at_service(bool v6, uint16_t port)
{
	int fd = new_socket(v6 ? V6 : V4, SOCK_DGRAM);
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t size;

	set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	assert_int_equal(addr_parse(service[v6], addr), 0);
	size = addr_to_sockaddr(addr, htons(port), v6, &ss);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, size), 0);
	return fd;
}

static inline void in_repair(int fd, bool on)
{
	set_option(fd, IPPROTO_TCP, TCP_REPAIR, on ? 1 : -1 /* no window probe */);
}

/* A TCP socket of the same tuple, in the namespace that the test is in. */
static inline int twin(const struct repair_image *image)
{
	bool v6 = !addr_is_v4(image->flow.daddr);
	int fd = new_socket(v6 ? V6 : V4, SOCK_STREAM);
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(image->flow.daddr, image->flow.dport, v6, &ss);

	in_repair(fd, true);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, size), 0);
	size = addr_to_sockaddr(image->flow.saddr, image->flow.sport, v6, &ss);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, size), 0);
	return fd;
}

/* What an agent left of a move of these sockets; word 0: nothing. The unit's index. */
static inline uint32_t leave(struct world *w, const int *fds, unsigned int n, uint32_t state,
			     uint8_t role, uint64_t netns)
{
	struct dataplane *d = &w->a.dp;
	uint32_t index = state ? unit_alloc(d) : 0;
	struct ferry_record *r = unit_record(d, index);
	uint32_t epoch = state == FERRY_LOCAL   ? EPOCH - 1 :
			 state == FERRY_FENCED  ? EPOCH :
			 state == FERRY_OPENING ? (role == FERRY_ROLE_ORIGIN ? EPOCH + 2 :
									       EPOCH + 1) :
						  EPOCH + 1;
	struct repair_image image;

	if (!index)
		return 0;
	memcpy(r->uuid, the_uuid, 16);
	memcpy(r->move_id, the_move, 16);
	r->role = role;
	r->peer = PEER;
	r->attempt = EPOCH;
	r->flows = n;
	r->app = (uint64_t)getpid();
	r->netns = netns;
	assert_true(unit_swap(d, index, 0,
			      FERRY_WORD(epoch, state, state == FERRY_LOCAL ? 0 : PEER)));
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(repair_identify(fds[i], &image), 0);
		assert_int_equal(table_insert(&d->flows, &image.flow, index), 0);
	}
	return index;
}

/* What this application says, with duplicates of these descriptors. The result of app_message(). */
static inline int tell(struct side *s, uint16_t type, uint32_t id, int32_t result,
		       const uint8_t uuid[16], const int *fds, unsigned int n, bool cut)
{
	struct received in = { .count = n, .cut = cut };
	struct ferry_app_message *m = (struct ferry_app_message *)in.data;
	bool lists = type == FERRY_APP_OFFER || type == FERRY_APP_RESUME;
	int r;

	*m = (struct ferry_app_message){ .type = type, .version = FERRY_APP_VERSION, .id = id };
	m->result = result;
	m->count = lists ? n : 0;
	memcpy(m->uuid, uuid, 16);
	in.size = (ssize_t)(sizeof(*m) + m->count * sizeof(m->sockets[0]));
	for (unsigned int i = 0; i < n; i++)
		in.fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
	r = app_message(s->app, &in);
	for (unsigned int i = 0; i < in.count; i++)
		close_fd(&in.fds[i]);
	return r;
}

/* The next message to it; type 0: none. */
static inline struct ferry_app_message heard(struct side *s)
{
	struct ferry_app_message m = {};

	if (recv(s->end, &m, sizeof(m), MSG_DONTWAIT) != sizeof(m))
		m.type = 0;
	return m;
}

#endif
