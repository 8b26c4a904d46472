/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one module that touches maps, programs and pins. A contract in its order:
 *
 *   1 dataplane_open()    lock the pin directory, adopt what is pinned there or create it, load
 *   2 ... services, peers, next hops, units are written ...
 *   3 dataplane_attach()  each device: XDP (native) and TC egress, new before old
 *   4 dataplane_own()     directory and pins become the agent's user's, who can open them again
 *   5 dataplane_close()   unmaps and unlocks; what is pinned goes on working
 *
 * Or, reading only, without a lock: dataplane_view().
 * Invariant: one writer for as long as the lock is held; unit words change by compare-and-swap.
 */
#ifndef DATAPLANE_H
#define DATAPLANE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ferry/map.h>
#include <ferry/reason.h>
#include "dataplane/table.h"

#define PIN_ROOT "/sys/fs/bpf/ferry"

struct dataplane_settings {
	const char *name; /* of the node: its pins are under PIN_ROOT/name */
	uint32_t node;
	uint32_t vni;
	uint8_t tag[8];
	uint8_t self4[4], self6[16]; /* tunnel addresses, zero: none */
	uint32_t buckets4, buckets6, stash, units;
	bool no_fence_in, no_fence_out; /* negative controls */
	bool spaces; /* units may have their sockets in other network namespaces */
	uint64_t netns; /* cookie of the network namespace it works in */
	int pins; /* the pin directory, open and locked already; 0: is opened and locked */
};

struct dataplane {
	char root[128]; /* the pin directory's name, for people */
	char pins[128]; /* the way to it: through the lock's descriptor, where there is one */
	int lock;
	bool writer;
	struct ferry_control control;
	struct table flows;
	__u64 *words;
	struct ferry_record *records;
	struct ferry_nexthop *nexthops;
	int map[16]; /* by enum in maps.c */
	int grace_inner, grace_outer;
	uint32_t next_unit;
	uint8_t *unit_freed; /* bitmap: freed since the last grace period */
	struct steer_bpf *steer;
	struct egress_bpf *egress;
	bool home; /* this is the node's network namespace: its devices go by their names here */
	/* How many TC filters a device has, or -errno. Set before anything is attached or taken
	 * off. */
	int (*filters)(void *arg, uint32_t ifindex);
	void *filters_arg;
};

/* A sentence for the last failure of open, view or attach: cause and remedy. */
const char *dataplane_error(void);

int dataplane_open(struct dataplane *d, const struct dataplane_settings *s);
int dataplane_view(struct dataplane *d, const char *name);
int dataplane_attach(struct dataplane *d, const char *ifname);
/* 0 or -errno; what is not plainly a pin of ours is left alone. */
int dataplane_own(struct dataplane *d, uid_t uid, gid_t gid);
void dataplane_close(struct dataplane *d);

/*
 * Taking a node off (detach.c), in this order:
 *   1 dataplane_take()          the lock, and the tables to look at: d->words is NULL where they
 *                               cannot be read. -ENOENT: there is no such node
 *   2 dataplane_attached()      links that still hold a device, all of them in this network
 *                               namespace, or -errno; sets home, where the pins do not tell
 *   3 dataplane_detach_steer()  XDP off every device
 *     ... addresses go: what is still sent is stopped by the fence ...
 *   4 dataplane_detach()        fences, qdiscs, pins
 * Each can be done again after a failure.
 */
int dataplane_take(struct dataplane *d, const char *name);
int dataplane_attached(struct dataplane *d, uint64_t netns);
int dataplane_detach_steer(struct dataplane *d);
int dataplane_detach(struct dataplane *d);

/* Waits until every packet that was in a program when it was called has left it (about 7 ms). */
int dataplane_grace(struct dataplane *d);

int dataplane_peer(struct dataplane *d, const uint8_t addr[16], uint32_t ifindex, uint32_t node);
int dataplane_service(struct dataplane *d, const struct ferry_service_key *key, uint32_t hop);
typedef int (*service_visit)(const struct ferry_service_key *key, uint32_t hop, void *arg);
int dataplane_services(struct dataplane *d, service_visit visit, void *arg);
/* Deletes what is pinned from an earlier configuration. */
typedef bool (*key_wanted)(const void *key, void *arg);
int dataplane_prune_peers(struct dataplane *d, key_wanted wanted, void *arg);
int dataplane_prune_services(struct dataplane *d, key_wanted wanted, void *arg);
/* Detaches from every device but these. */
int dataplane_prune_links(struct dataplane *d, const char (*ifnames)[IFNAMSIZ], unsigned int n);
/* Sums over CPUs. */
int dataplane_counters(struct dataplane *d, uint64_t sum[FERRY_R_COUNT]);

/* Outer headers towards a node; live from the next packet on. mtu: of the outer packet. */
struct nexthop_route {
	uint8_t from[16], to[16];
	uint8_t smac[6], dmac[6];
	uint32_t ifindex;
	uint16_t mtu;
	bool veth; /* XDP_TX does not work on it */
};
int nexthop_set(struct dataplane *d, uint32_t node, const struct nexthop_route *route, uint32_t vni,
		const uint8_t tag[8]);
/* Known, but not resolved (any more). */
void nexthop_clear(struct dataplane *d, uint32_t node);
/* The MTU towards a node less the tunnel's headers, 0: unresolved. */
uint32_t nexthop_room(const struct dataplane *d, uint32_t node);

/* Units. A fresh one is FREE with a zeroed record; 0: none free. */
uint32_t unit_alloc(struct dataplane *d);
/* Its flows are gone already. */
void unit_free(struct dataplane *d, uint32_t unit);
uint64_t unit_word(const struct dataplane *d, uint32_t unit);
/* False where the word was not from any more. */
bool unit_swap(struct dataplane *d, uint32_t unit, uint64_t from, uint64_t to);
struct ferry_record *unit_record(const struct dataplane *d, uint32_t unit);
/* The unit with this uuid, 0 none. */
uint32_t unit_by_uuid(const struct dataplane *d, const uint8_t uuid[16]);
const char *state_name(uint32_t state);

#endif
