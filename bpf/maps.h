/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All maps and settings of the datapath. Every map is pinned under the node's root by its name;
 * sizes are set by the agent before the load. Packets never create an entry anywhere.
 */
#ifndef MAPS_H
#define MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <ferry/map.h>
#include <ferry/reason.h>

/* Settings, set through the skeleton before the load. */
const volatile __u32 cfg_node;      /* this node's number */
const volatile __u32 cfg_self4;     /* this node's tunnel addresses, 0: none */
const volatile __u64 cfg_self6[2];
const volatile __u32 cfg_vni;       /* in the high 24 bits, network order in memory */
const volatile __u64 cfg_tag;       /* 0: none set, none asked for */
const volatile __u64 cfg_seed;
const volatile __u32 cfg_mask4;     /* buckets - 1 */
const volatile __u32 cfg_mask6;
const volatile __u8 cfg_fence_in = 1;  /* 0 only in negative controls: FENCED delivers */
const volatile __u8 cfg_fence_out = 1; /* 0 only in negative controls: egress is never fenced */

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))

/* Flow tables: bucket -> slots. Agent writes; full means the agent refuses a unit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ferry_bucket4);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ferry_bucket6);
} flows6 SEC(".maps");

/* Flows that fit neither of their buckets -> unit. Agent writes; full: as above. Not preallocated:
 * an element that was deleted is not used again while a program may still read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct ferry_flow);
	__type(value, __u32);
} stash SEC(".maps");

/* Unit -> word. Agent writes; the datapath only raises the epoch of LOCAL (tuple reuse). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} words SEC(".maps");

/* Unit -> record. Agent writes but for what map.h marks "datapath". */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ferry_record);
} records SEC(".maps");

/* Node number -> outer headers. Agent writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FERRY_NODES);
	__type(key, __u32);
	__type(value, struct ferry_nexthop);
} nexthops SEC(".maps");

/* Device -> itself, for every device a next hop leaves by. Agent writes. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Outer source and device -> node number. Agent writes; absent: not a node of ours. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * FERRY_NODES);
	__type(key, struct ferry_peer_key);
	__type(value, __u32);
} peers SEC(".maps");

/* Service -> next hop of a flow without an entry. Agent writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct ferry_service_key);
	__type(value, struct ferry_service);
} services SEC(".maps");

/* Reason -> packets. Datapath writes, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FERRY_R_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* One entry: what a later agent needs to know. Agent writes, once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ferry_control);
} control SEC(".maps");

static __always_inline void count(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &reason);

	if (n)
		(*n)++;
}

#endif
