/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the datapath and the agent agree on: every pinned key and value.
 *
 * Layouts here outlive both: a change needs a new FERRY_LAYOUT. All are little-endian hosts'
 * memory; addresses and ports are kept in network order, as a receiver's packet carries them.
 * Invariant: only the agent that holds the pin directory's lock writes, but for what is marked
 * "datapath".
 */
#ifndef FERRY_MAP_H
#define FERRY_MAP_H

#include <linux/types.h>

#define FERRY_LAYOUT 1

/* Unit word: epoch:32 | state:4 | next hop:28, one load, changed by compare-and-swap only. */
enum ferry_state {
	FERRY_FREE = 0,
	FERRY_LOCAL = 1,    /* serve here */
	FERRY_FENCED = 2,   /* origin in a move, hop = destination: park everything */
	FERRY_PREPARED = 3, /* destination before the flip, hop = origin: park its own epoch only */
	FERRY_OPENING = 4,  /* own egress open, packets still parked */
	FERRY_REMOTE = 5,   /* send to hop */
	FERRY_GONE = 6,     /* drop */
	FERRY_STATES
};

#define FERRY_HOP_MASK 0x0fffffffU
#define FERRY_WORD(epoch, state, hop)                                                              \
	((__u64)(__u32)(epoch) << 32 | (__u64)(state) << 28 | ((hop) & FERRY_HOP_MASK))
#define FERRY_WORD_EPOCH(w) ((__u32)((w) >> 32))
#define FERRY_WORD_STATE(w) ((__u32)((w) >> 28 & 0xf))
#define FERRY_WORD_HOP(w) ((__u32)(w) & FERRY_HOP_MASK)
/* Epochs are compared as serial numbers (RFC 1982): a is newer than b. */
#define FERRY_NEWER(a, b) ((__s32)((__u32)(a) - (__u32)(b)) > 0)

/* A node's number is the same in the whole fleet; 0 is nobody. Hops below FERRY_NODES are nodes. */
#define FERRY_NODES 1024
#define FERRY_UNIT_BITS 24
#define FERRY_UNIT_SOCKETS 253 /* SCM_MAX_FD: one message carries a unit */

enum ferry_role {
	FERRY_ROLE_NONE = 0,
	FERRY_ROLE_ORIGIN = 1,
	FERRY_ROLE_DESTINATION = 2,
	FERRY_ROLE_INGRESS = 3, /* told by a node: no socket here, REMOTE only */
};

/* Written before the swap that needs it; not read per packet. Times: CLOCK_BOOTTIME, ns. */
struct ferry_record {
	__u8 uuid[16];
	__u8 move_id[16];   /* random per attempt */
	__u8 peer_boot[16]; /* the peer's boot id; not read yet */
	__u64 deadline;     /* 5 s after the fence, or after it was heard of; GONE: to be forgotten */
	__u64 app;    /* the application's pid, namespaced as the agent sees it */
	__u64 netns;  /* cookie of the namespace of its sockets */
	__u64 parked; /* datapath: packets parked; none yet */
	__u64 lost;   /* datapath: packets lost in freeze */
	__u32 newer;  /* datapath: newest stamp seen above the word's epoch; 0 none */
	__u32 attempt; /* epoch of the attempt */
	__u32 flows;
	__u32 park_limit; /* frames; not set yet */
	__u16 peer;       /* node number */
	__u8 role;
	__u8 held; /* destination: a tombstone was here, and is again where the unit is discarded */
	__u32 device; /* ifindex that leads to its sockets' own namespace, 0: they are in the node's */
	__u8 pad[16];
};
_Static_assert(sizeof(struct ferry_record) == 128, "record is 128 bytes");
_Static_assert(__builtin_offsetof(struct ferry_record, newer) == 88, "no padding before newer");

/*
 * Flow slots. Word B: source port, destination port (network order, as in the L4 header), then
 * protocol:7, spilled:1 (meaningful in a bucket's first slot: look in the stash too), unit:24.
 * B without the spilled bit == 0: empty. Insert the addresses, then B (release); delete B = 0;
 * readers read B, addresses, B. A bound UDP port is the flow with remote address and port 0.
 */
#define FERRY_SLOT_SPILLED (1ULL << 39)
#define FERRY_SLOT_KEY ((1ULL << 39) - 1)
#define FERRY_SLOT_UNIT(b) ((__u32)((b) >> 40))
#define FERRY_SLOT_B(ports, proto, unit)                                                           \
	((__u64)(__u32)(ports) | (__u64)((proto) & 0x7f) << 32 | (__u64)(unit) << 40)

struct ferry_slot4 {
	__u64 a; /* source, destination address */
	__u64 b;
};
struct ferry_slot6 {
	__u64 a[4]; /* source, destination address */
	__u64 b;
};

#define FERRY_SLOTS4 4
#define FERRY_SLOTS6 3
struct ferry_bucket4 {
	struct ferry_slot4 slot[FERRY_SLOTS4];
};
struct ferry_bucket6 {
	struct ferry_slot6 slot[FERRY_SLOTS6];
	__u64 pad;
};
_Static_assert(sizeof(struct ferry_bucket4) == 64, "an IPv4 bucket is a cache line");
_Static_assert(sizeof(struct ferry_bucket6) == 128, "an IPv6 bucket is two cache lines");

/* Key of the stash; IPv4 addresses are v4-mapped (::ffff:a.b.c.d). As its receiver sees it. */
struct ferry_flow {
	__u8 saddr[16];
	__u8 daddr[16];
	__u16 sport;
	__u16 dport;
	__u8 proto;
	__u8 pad[3];
};
_Static_assert(sizeof(struct ferry_flow) == 40, "flow key");

/*
 * Next hop: outer headers ready to copy. Two templates; live names the one to use (1 or 2, 0:
 * unresolved). The agent writes the other one, then live. Lengths, DS field, checksum, source
 * port and the option's epoch and hops are filled in per packet.
 */
#define FERRY_TEMPLATE_MAX 96
struct ferry_template {
	__u8 header[FERRY_TEMPLATE_MAX]; /* Ethernet, IP, UDP, GENEVE, option */
	__u32 ifindex;                   /* out of this device */
	__u32 csum; /* IPv4: ones' complement sum of the header with length, DS field, checksum 0 */
	__u16 mtu;  /* of the outer IP packet */
	__u8 length; /* of header: FERRY_OUTER4 or FERRY_OUTER6 + 14 */
	__u8 flags;
	__u8 pad[4];
};
/* By redirect even where the packet came in by this device: a veth does not kick its peer for
 * XDP_TX unless the peer has a program of its own (drivers/net/veth.c, veth_xdp_flush). */
#define FERRY_TEMPLATE_REDIRECT 1
struct ferry_nexthop {
	__u32 live;
	__u32 node;
	__u64 pad;
	struct ferry_template template[2];
	__u64 pad2[2];
};
_Static_assert(sizeof(struct ferry_template) == 112, "template");
_Static_assert(sizeof(struct ferry_nexthop) == 256, "next hop");

/* Who may send us GENEVE, and on which device. IPv4 addresses are v4-mapped. */
struct ferry_peer_key {
	__u8 addr[16];
	__u32 ifindex;
};
struct ferry_service_key {
	__u8 addr[16];
	__u16 port; /* network order */
	__u8 proto;
	__u8 pad;
};
struct ferry_service {
	__u32 hop;
	__u32 pad;
};

/* One entry, pinned: what a later agent needs to use the tables that are there. */
struct ferry_control {
	__u32 layout;
	__u32 node;
	__u64 seed;     /* of the flow tables' hash */
	__u32 buckets4; /* powers of two */
	__u32 buckets6;
	__u32 units;
	__u32 netns; /* low half of its network namespace's cookie, 0: not known */
	__u8 boot[16];
	char name[32];
};
_Static_assert(sizeof(struct ferry_control) == 80, "control");

#endif
