/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What to do with a packet of a flow that has an entry: unit word and claim in, action out.
 * Reads no packet and no map; the same code is tested in user space. The rules are
 * docs/DESIGN.md, sections 3.5 and 4.
 * Invariant: only a word that says REMOTE stamps an epoch; a parked state never delivers.
 */
#ifndef VERDICT_H
#define VERDICT_H

#include <linux/types.h>
#include <ferry/map.h>
#include <ferry/reason.h>

enum action {
	ACT_DELIVER, /* to the local stack */
	ACT_DROP,
	ACT_SEND, /* in the tunnel, to hop */
};

struct verdict {
	__u32 action;
	__u32 reason;
	__u32 note; /* a second reason to count, 0 none (FOREIGN is no note) */
	__u32 hop;
	__u32 epoch; /* to stamp */
	__u32 newer; /* the claim is newer than our word: tell the record */
	__u32 raise; /* LOCAL: raise our word to the claim */
	__u32 park;  /* dropped because parked: count it as lost in the record */
};

static inline __attribute__((always_inline)) __u32 lost_reason(__u8 proto, __u8 icmp)
{
	if (icmp)
		return FERRY_R_LOST_ICMP;
	return proto == 17 ? FERRY_R_LOST_UDP : FERRY_R_LOST_TCP;
}

/* claim: the epoch the packet carries, 0 none. */
static inline __attribute__((always_inline)) struct verdict decide(__u64 word, __u32 claim,
								   __u8 proto, __u8 icmp)
{
	__u32 epoch = FERRY_WORD_EPOCH(word), hop = FERRY_WORD_HOP(word);
	struct verdict v = { .action = ACT_DROP, .hop = hop, .epoch = claim };

	v.newer = claim && FERRY_NEWER(claim, epoch);
	if (claim && FERRY_NEWER(epoch, claim))
		v.note = FERRY_R_EPOCH_OLD;

	switch (FERRY_WORD_STATE(word)) {
	case FERRY_LOCAL:
		v.action = ACT_DELIVER;
		v.reason = FERRY_R_LOCAL;
		v.raise = v.newer;
		if (v.newer)
			v.note = FERRY_R_EPOCH_REUSE;
		break;
	case FERRY_PREPARED:
		if (claim == epoch) {
			v.park = 1;
			v.reason = lost_reason(proto, icmp);
			break;
		}
		v.action = ACT_SEND; /* the origin still owns it; the claim stays as it came */
		v.reason = FERRY_R_PREPARED;
		break;
	case FERRY_FENCED:
	case FERRY_OPENING:
		v.park = 1;
		v.reason = lost_reason(proto, icmp);
		break;
	case FERRY_REMOTE:
		if (v.newer) {
			v.reason = FERRY_R_STALE;
			break;
		}
		v.action = ACT_SEND;
		v.reason = FERRY_R_REMOTE;
		v.epoch = epoch;
		break;
	case FERRY_GONE:
		v.reason = v.newer ? FERRY_R_STALE : FERRY_R_GONE;
		break;
	default:
		v.action = ACT_DELIVER;
		v.reason = FERRY_R_FREE_UNIT;
		v.newer = 0;
	}
	return v;
}

/* May a unit in this state send? (Own egress; what is merely forwarded is not asked.) */
static inline __attribute__((always_inline)) int may_send(__u32 state)
{
	return state == FERRY_FREE || state == FERRY_LOCAL || state == FERRY_OPENING;
}

#endif
