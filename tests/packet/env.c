// SPDX-License-Identifier: BSD-2-Clause
/*
 * The packet tests' environment: see env.h. Flows go in by the agent's own writer
 * (ctl/dataplane/table.c), so that reader and writer are tested against each other.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <ferry/hash.h>
#include "steer.skel.h"
#include "egress.skel.h"
#include "env.h"

#define SEED 0x0123456789abcdefULL
#define MAX_CPUS 1024

int env_netns(void)
{
	if (unshare(CLONE_NEWNET))
		return -errno;
	return system("ip link add other0 type veth peer name other1") ? -ENODEV : 0;
}

const char *reason_name(unsigned int reason)
{
	static const char *const names[] = {
#define X(n, id, name, text) [n] = name,
		FERRY_REASONS(X)
#undef X
	};

	return reason < FERRY_R_COUNT ? names[reason] : "?";
}

static int set_template(const struct env *e, struct ferry_template *t, uint8_t node,
			uint32_t ifindex, uint16_t mtu)
{
	bool v6 = node & 1;
	struct outer o = { .v6 = v6, .from = e->world.self, .to = node, .tag = TAG };
	struct buf f = { 0 };
	uint32_t sum = 0;
	uint16_t word;

	eth_out(&f, v6, node);
	build_outer(&f, &o, false, NULL, 0);
	memset(f.b + ETH + (v6 ? 4 : 2), 0, 2); /* length */
	if (!v6)
		memset(f.b + ETH + 10, 0, 2); /* checksum */
	for (int i = 0; i < 20; i += 2) {
		memcpy(&word, f.b + ETH + i, 2);
		sum += word;
	}
	if (f.n > sizeof(t->header))
		return -E2BIG;
	memcpy(t->header, f.b, f.n);
	t->length = f.n;
	t->ifindex = ifindex;
	t->mtu = mtu;
	t->csum = (sum & 0xffff) + (sum >> 16);
	return 0;
}

static int set_hop(struct env *e, uint32_t hop, uint32_t live, uint32_t ifindex, uint16_t mtu)
{
	for (uint32_t node = hop; node <= hop + 1; node++) {
		struct ferry_nexthop nh = { .live = live, .node = node };
		uint8_t flags = hop == HOP_VETH ? FERRY_TEMPLATE_REDIRECT : 0;
		int r;

		/* the other template is a trap: the right family, nobody's address */
		r = set_template(e, &nh.template[0], node, ifindex, mtu);
		if (!r)
			r = set_template(e, &nh.template[1], node + 100, ifindex, mtu);
		nh.template[0].flags = nh.template[1].flags = flags;
		if (!r && bpf_map_update_elem(bpf_map__fd(e->steer->maps.nexthops), &node, &nh, 0))
			r = -errno;
		if (r)
			return r;
	}
	return 0;
}

int env_live(struct env *e, uint32_t hop, uint32_t live)
{
	struct ferry_nexthop nh;
	int fd = bpf_map__fd(e->steer->maps.nexthops);

	if (bpf_map_lookup_elem(fd, &hop, &nh))
		return -errno;
	nh.live = live;
	return bpf_map_update_elem(fd, &hop, &nh, 0) ? -errno : 0;
}

static int set_world(struct env *e)
{
	uint32_t other = if_nametoindex("other0"), lo = IFINDEX_LO;
	int devices = bpf_map__fd(e->steer->maps.devices), r;

	if (!other || bpf_map_update_elem(devices, &other, &other, 0) ||
	    bpf_map_update_elem(devices, &lo, &lo, 0))
		return -ENODEV;
	for (uint32_t node = 1; node <= 3; node++) {
		for (int v6 = 0; v6 < 2; v6++) {
			struct ferry_peer_key key = { .ifindex = lo };

			addr_node(key.addr, v6, node);
			if (node == e->world.self)
				continue;
			if (bpf_map_update_elem(bpf_map__fd(e->steer->maps.peers), &key, &node, 0))
				return -errno;
		}
	}
	r = set_hop(e, HOP_SAME, 1, lo, MTU);
	r = r ?: set_hop(e, HOP_OTHER, 1, other, MTU);
	r = r ?: set_hop(e, HOP_UNRESOLVED, 0, lo, MTU);
	r = r ?: set_hop(e, HOP_NO_DEVICE, 1, 4242, MTU);
	r = r ?: set_hop(e, HOP_VETH, 1, lo, MTU);
	return r ?: set_hop(e, HOP_JUMBO, 1, lo, MTU_JUMBO);
}

static int load(struct env *e)
{
	struct steer_bpf *s = e->steer = steer_bpf__open();
	struct egress_bpf *g = e->egress = egress_bpf__open();
	uint8_t self[16];

	if (!s || !g)
		return -errno;
	addr_node(self, false, e->world.self);
	memcpy((void *)&s->rodata->cfg_self4, self + 12, 4);
	addr_node(self, true, e->world.self);
	if (!e->world.open) {
		memcpy((void *)s->rodata->cfg_self6, self, 16);
		memcpy((void *)&s->rodata->cfg_tag, TAG, 8);
	}
	s->rodata->cfg_node = e->world.self;
	s->rodata->cfg_vni = htonl(e->world.vni << 8);
	g->rodata->cfg_spaces = 1;
	s->rodata->cfg_fence_in = g->rodata->cfg_fence_out = !e->world.no_fence;
	s->rodata->cfg_seed = g->rodata->cfg_seed = SEED;
	s->rodata->cfg_mask4 = s->rodata->cfg_mask6 = e->world.buckets - 1;
	g->rodata->cfg_mask4 = g->rodata->cfg_mask6 = e->world.buckets - 1;
	bpf_map__set_max_entries(s->maps.flows4, e->world.buckets);
	bpf_map__set_max_entries(s->maps.flows6, e->world.buckets);
	bpf_map__set_max_entries(s->maps.stash, 64);
	bpf_map__set_max_entries(s->maps.words, UNITS);
	bpf_map__set_max_entries(s->maps.records, UNITS);
	if (steer_bpf__load(s))
		return -errno;
	bpf_map__reuse_fd(g->maps.flows4, bpf_map__fd(s->maps.flows4));
	bpf_map__reuse_fd(g->maps.flows6, bpf_map__fd(s->maps.flows6));
	bpf_map__reuse_fd(g->maps.stash, bpf_map__fd(s->maps.stash));
	bpf_map__reuse_fd(g->maps.words, bpf_map__fd(s->maps.words));
	bpf_map__reuse_fd(g->maps.records, bpf_map__fd(s->maps.records));
	bpf_map__reuse_fd(g->maps.counters, bpf_map__fd(s->maps.counters));
	return egress_bpf__load(g) ? -errno : 0;
}

static size_t size4(const struct env *e)
{
	return e->world.buckets * sizeof(struct ferry_bucket4);
}

static size_t size6(const struct env *e)
{
	return e->world.buckets * sizeof(struct ferry_bucket6);
}

static void *map_of(struct bpf_map *m, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(m), 0);

	return p == MAP_FAILED ? NULL : p;
}

int env_open(struct env *e, struct world world)
{
	int r;

	*e = (struct env){ .world = world };
	e->world.buckets = world.buckets ?: BUCKETS;
	r = load(e);
	if (r)
		return r;
	e->words = map_of(e->steer->maps.words, UNITS * sizeof(*e->words));
	e->records = map_of(e->steer->maps.records, UNITS * sizeof(*e->records));
	e->table = (struct table){
		.bucket4 = map_of(e->steer->maps.flows4, size4(e)),
		.bucket6 = map_of(e->steer->maps.flows6, size6(e)),
		.buckets4 = e->world.buckets,
		.buckets6 = e->world.buckets,
		.seed = SEED,
		.stash = bpf_map__fd(e->steer->maps.stash),
		.stash_max = 64,
	};
	if (!e->words || !e->records || !e->table.bucket4 || !e->table.bucket6)
		return -ENOMEM;
	return table_init(&e->table) ?: set_world(e);
}

void env_close(struct env *e)
{
	munmap(e->words, UNITS * sizeof(*e->words));
	munmap(e->records, UNITS * sizeof(*e->records));
	munmap(e->table.bucket4, size4(e));
	munmap(e->table.bucket6, size6(e));
	table_close(&e->table);
	egress_bpf__destroy(e->egress);
	steer_bpf__destroy(e->steer);
	memset(e, 0, sizeof(*e));
}

void flow_key(struct ferry_flow *f, bool v6, uint8_t proto, bool bound)
{
	memset(f, 0, sizeof(*f));
	addr_service(f->daddr, v6);
	f->dport = htons(SERVICE_PORT);
	f->proto = proto;
	addr_client(f->saddr, v6);
	f->sport = htons(CLIENT_PORT);
	if (!bound)
		return;
	memset(f->saddr + (v6 ? 0 : 12), 0, v6 ? 16 : 4);
	f->sport = 0;
}

static struct ferry_hash hash_of(const struct env *e, const struct ferry_flow *f)
{
	uint32_t ports = f->sport | (uint32_t)f->dport << 16;
	__u64 a[4];

	if (flow_is_v6(f)) {
		memcpy(a, f->saddr, 16);
		memcpy(a + 2, f->daddr, 16);
		return ferry_hash6(e->table.seed, a, ports, f->proto);
	}
	memcpy(a, f->saddr + 12, 4);
	memcpy((char *)a + 4, f->daddr + 12, 4);
	return ferry_hash4(e->table.seed, a[0], ports, f->proto);
}

uint16_t flow_sport(const struct env *e, const struct ferry_flow *f)
{
	return 0xc000 | (hash_of(e, f).first & 0x3fff);
}

bool flow_in_all_buckets(const struct env *e, const struct ferry_flow *f)
{
	struct ferry_hash h = hash_of(e, f);

	return e->world.buckets == 2 && (h.first ^ h.second) & 1;
}

int env_flow(struct env *e, const struct ferry_flow *f, uint32_t unit)
{
	return table_insert(&e->table, f, unit);
}

int env_flow_stash(struct env *e, const struct ferry_flow *f, uint32_t unit)
{
	struct ferry_hash h = hash_of(e, f);
	uint32_t i[2] = { h.first % e->world.buckets, h.second % e->world.buckets };

	for (int n = 0; n < 2; n++) {
		if (flow_is_v6(f))
			e->table.bucket6[i[n]].slot[0].b |= FERRY_SLOT_SPILLED;
		else
			e->table.bucket4[i[n]].slot[0].b |= FERRY_SLOT_SPILLED;
	}
	return bpf_map_update_elem(e->table.stash, f, &unit, BPF_NOEXIST) ? -errno : 0;
}

int env_service(struct env *e, bool v6, uint8_t proto, uint32_t hop)
{
	struct ferry_service_key key = { .port = htons(SERVICE_PORT), .proto = proto };
	struct ferry_service s = { .hop = hop };

	addr_service(key.addr, v6);
	return bpf_map_update_elem(bpf_map__fd(e->steer->maps.services), &key, &s, 0) ? -errno : 0;
}

static void empty(int fd)
{
	uint8_t key[64];

	while (!bpf_map_get_next_key(fd, NULL, key))
		if (bpf_map_delete_elem(fd, key))
			return;
}

void env_clear(struct env *e)
{
	empty(bpf_map__fd(e->steer->maps.services));
	empty(e->table.stash);
	memset(e->table.bucket4, 0, size4(e));
	memset(e->table.bucket6, 0, size6(e));
	memset(e->words, 0, UNITS * sizeof(*e->words));
	memset(e->records, 0, UNITS * sizeof(*e->records));
	table_close(&e->table);
	if (table_init(&e->table))
		abort();
}

static int counters(const struct env *e, uint64_t sum[FERRY_R_COUNT])
{
	int fd = bpf_map__fd(e->steer->maps.counters), cpus = libbpf_num_possible_cpus();
	uint64_t per_cpu[MAX_CPUS];

	for (uint32_t i = 0; i < FERRY_R_COUNT; i++) {
		if (cpus > MAX_CPUS || bpf_map_lookup_elem(fd, &i, per_cpu))
			return -EINVAL;
		sum[i] = 0;
		for (int c = 0; c < cpus; c++)
			sum[i] += per_cpu[c];
	}
	return 0;
}

static int run(const struct env *e, int prog, struct bpf_test_run_opts *o, struct result *r)
{
	uint64_t before[FERRY_R_COUNT];
	int err = counters(e, before);

	memset(r, 0, sizeof(*r));
	o->data_out = r->out.b;
	o->data_size_out = sizeof(r->out.b);
	if (err || bpf_prog_test_run_opts(prog, o))
		return err ?: -errno;
	r->verdict = o->retval;
	r->out.n = o->data_size_out;
	err = counters(e, r->reasons);
	for (int i = 0; i < FERRY_R_COUNT; i++)
		r->reasons[i] -= before[i];
	return err;
}

int env_steer(struct env *e, const struct buf *frame, uint32_t ifindex, uint32_t repeat,
	      struct result *r)
{
	struct xdp_md ctx = { .data_end = frame->n, .ingress_ifindex = ifindex };
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame->b, .data_size_in = frame->n,
		    .ctx_in = &ctx, .ctx_size_in = sizeof(ctx), .repeat = repeat);

	return run(e, bpf_program__fd(e->steer->progs.ferry_steer), &o, r);
}

int env_egress(struct env *e, const struct buf *frame, uint32_t ifindex, struct result *r)
{
	struct __sk_buff ctx = { .ingress_ifindex = ifindex };
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame->b, .data_size_in = frame->n,
		    .ctx_in = &ctx, .ctx_size_in = sizeof(ctx), .repeat = 1);

	return run(e, bpf_program__fd(e->egress->progs.ferry_egress), &o, r);
}
