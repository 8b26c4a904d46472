/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both programs loaded, their maps mapped, and one packet run through them (BPF_PROG_TEST_RUN) in
 * a network namespace of the test's own, which ends with the process. Nothing is pinned or
 * attached. Of the nodes 1, 2 and 3 one is us; the others are peers, on lo.
 *
 * Order: env_netns() once, then env_open(), rows, env_close(). A row sets flows and words and
 * calls env_clear() when done.
 */
#ifndef PACKET_ENV_H
#define PACKET_ENV_H

#include <ferry/map.h>
#include <ferry/reason.h>
#include "dataplane/table.h"
#include "build.h"

#define BUCKETS 256
#define UNITS 1024
#define IFINDEX_LO 1
#define MTU 1500
#define MTU_JUMBO 9000

/* Next hops; + 1 for the same with IPv6 outside. The numbers are nodes. */
enum hop {
	HOP_SAME = 2, /* out of lo, where rows come in */
	HOP_OTHER = 4, /* out of the other device */
	HOP_UNRESOLVED = 6,
	HOP_NO_DEVICE = 8, /* its device is not in the device map */
	HOP_JUMBO = 10,
	HOP_VETH = 12, /* out of lo, but by redirect */
	HOP_BEYOND = 2000, /* no such entry */
};

struct world {
	uint8_t self; /* node */
	uint32_t vni;
	bool open; /* no tag asked for, no IPv6 tunnel address */
	bool no_fence; /* the switches of the negative controls */
	uint32_t buckets; /* of each flow table; 0: BUCKETS */
};
#define WORLD ((struct world){ .self = 1, .vni = 0xfe44 })

struct env {
	struct world world;
	struct steer_bpf *steer;
	struct egress_bpf *egress;
	struct table table;
	uint64_t *words;
	struct ferry_record *records;
};

struct result {
	uint32_t verdict;
	uint64_t reasons[FERRY_R_COUNT]; /* moved by */
	struct buf out;
};

int env_netns(void);
int env_open(struct env *e, struct world world);
void env_close(struct env *e);

/* An entry for the cast's flow (bound: the service's port; stash: not in the buckets). */
void flow_key(struct ferry_flow *f, bool v6, uint8_t proto, bool bound);
int env_flow(struct env *e, const struct ferry_flow *f, uint32_t unit);
int env_flow_stash(struct env *e, const struct ferry_flow *f, uint32_t unit);
int env_service(struct env *e, bool v6, uint8_t proto, uint32_t hop);
int env_live(struct env *e, uint32_t hop, uint32_t live);
void env_clear(struct env *e);

/* ifindex: the device it came in by; 0 for egress: our own. 0 or -errno. */
int env_steer(struct env *e, const struct buf *frame, uint32_t ifindex, uint32_t repeat,
	      struct result *r);
int env_egress(struct env *e, const struct buf *frame, uint32_t ifindex, struct result *r);

/* The outer source port of the flow, by the shared hash; checked to be dynamic by its callers. */
uint16_t flow_sport(const struct env *e, const struct ferry_flow *f);
/* Of two buckets, the flow's choices are one each. */
bool flow_in_all_buckets(const struct env *e, const struct ferry_flow *f);
const char *reason_name(unsigned int reason);

#endif
