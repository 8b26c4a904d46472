// SPDX-License-Identifier: GPL-2.0-only
/*
 * egress: stops what this node itself sends for a unit that may not send (FENCED, PREPARED,
 * REMOTE, GONE): a frozen socket still acknowledges and its timers still fire, and the socket left
 * behind by a move must not answer. The node itself is its own namespace, and that of the unit's
 * sockets behind the device that leads to them; packets that are only forwarded pass: a node may be
 * the other node's router.
 */
#include <linux/pkt_cls.h>
#define CTX_SKB
#include "maps.h"
#include "parse.h"
#include "flow.h"
#include "verdict.h"

/* 0: no unit's sockets are in another namespace, and what is forwarded is not even looked at. */
const volatile __u8 cfg_spaces;

#define HEADERS 128 /* Ethernet, IPv6 with some extensions, TCP's ports */

/* Sent here, or come in from the namespace that the unit's sockets are in. */
static __always_inline int is_own(struct __sk_buff *skb, __u32 unit)
{
	struct ferry_record *r;

	if (!skb->ingress_ifindex)
		return 1;
	r = bpf_map_lookup_elem(&records, &unit);
	return r && r->device == skb->ingress_ifindex;
}

static __always_inline int fenced(struct __sk_buff *skb)
{
	struct cursor c = { skb, 0 };
	struct packet p = {};
	int type = parse_eth(&c);
	__u64 *word;
	__u32 unit;

	/* a GSO packet's length field may be 0 or larger than what is here */
	if (type < 0 || parse_ip(skb, &p, c.offset, type, ANY_LENGTH) < 0 || p.icmp)
		return 0;
	tuple_reverse(&p.t);
	unit = flow_find(&p.t, flow_hash(&p.t));
	if (!unit || !is_own(skb, unit))
		return 0;
	word = bpf_map_lookup_elem(&words, &unit);
	return word && !may_send(FERRY_WORD_STATE(READ_ONCE(*word)));
}

SEC("tc")
int ferry_egress(struct __sk_buff *skb)
{
	if (!cfg_fence_out || (skb->ingress_ifindex && !cfg_spaces))
		return TC_ACT_UNSPEC;
	if (skb->data_end - skb->data < HEADERS && skb->data_end - skb->data < skb->len)
		bpf_skb_pull_data(skb, skb->len < HEADERS ? skb->len : HEADERS);
	if (!fenced(skb))
		return TC_ACT_UNSPEC;
	count(FERRY_R_EGRESS_FENCED);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
