/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every way out of the datapath: number, name, sentence. Append-only; numbers are an interface.
 * Each packet counts under exactly one of those up to "egress"; a "note" is counted besides.
 */
#ifndef FERRY_REASON_H
#define FERRY_REASON_H

#define FERRY_REASONS(X)                                                                            \
	X(0, FOREIGN, "foreign", "no entry and no service of ours: passed as it came")             \
	X(1, LOCAL, "local", "owner here: delivered")                                              \
	X(2, LOCAL_UNKNOWN, "local-unknown", "from a node, no entry here: delivered")              \
	X(3, REMOTE, "remote", "owner elsewhere: sent in the tunnel with our epoch")               \
	X(4, PREPARED, "prepared-on", "destination before the flip: sent on to the origin")        \
	X(5, SERVICE, "service", "no entry: sent to its service's node, no claim")                 \
	X(6, SERVICE_LOCAL, "service-local", "no entry: its service is served here, delivered")    \
	X(7, NOT_IP, "not-ip", "neither IPv4 nor IPv6: passed")                                    \
	X(8, VLAN, "vlan", "VLAN tag: passed")                                                     \
	X(9, MALFORMED, "malformed", "headers cut short or contradicting lengths: passed")         \
	X(10, FRAGMENT, "fragment", "IP fragment, ports unknown: passed for reassembly")           \
	X(11, OTHER_PROTO, "other-proto", "neither TCP, UDP nor an ICMP error: passed")            \
	X(12, EXT_HEADERS, "ext-headers", "more IPv6 extension headers than are walked: passed")   \
	X(13, FOREIGN_VNI, "foreign-vni", "GENEVE of another network: passed")                     \
	X(14, ENCAP_UNKNOWN_PEER, "encap-unknown-peer",                                             \
	  "GENEVE of ours from no node of ours, or on another device: dropped")                    \
	X(15, GENEVE_BAD, "geneve-bad", "GENEVE from a node, without exactly our option: dropped") \
	X(16, ENCAP_TAG, "encap-tag", "GENEVE from a node with a wrong tag: dropped")              \
	X(17, INNER_BAD, "inner-bad", "from a node, inner packet not one we can place: dropped")   \
	X(18, ECN_ILLEGAL, "ecn-illegal", "outer CE on an inner not-ECT packet: dropped, RFC 6040") \
	X(19, LOST_TCP, "lost-in-freeze-tcp", "parked state, TCP: dropped")                        \
	X(20, LOST_UDP, "lost-in-freeze-udp", "parked state, UDP: dropped")                        \
	X(21, LOST_ICMP, "lost-in-freeze-icmp", "parked state, ICMP error: dropped")               \
	X(22, GONE, "gone", "unit ended: dropped")                                                 \
	X(23, STALE, "stale", "claim newer than our REMOTE or GONE: dropped, the agent is told")   \
	X(24, HOPS, "hops", "sent on by too many nodes: dropped")                                  \
	X(25, UNRESOLVED, "unresolved", "next hop has no neighbour yet: dropped")                  \
	X(26, TOO_BIG, "too-big", "does not fit the next hop's MTU with its tunnel: dropped")      \
	X(27, HEADROOM, "headroom", "no room for the outer headers: dropped")                      \
	X(28, REDIRECT, "redirect", "out device not in the device map: dropped")                   \
	X(29, TTL, "ttl", "TTL or hop limit spent before the next node: passed, or dropped if tunnelled") \
	X(30, FREE_UNIT, "free-unit", "entry names a free unit: passed")                           \
	X(31, EGRESS_FENCED, "egress-fenced", "own packet of a unit that may not send: dropped")   \
	X(32, EPOCH_REUSE, "epoch-reuse", "note: claim newer than LOCAL, our word raised")         \
	X(33, EPOCH_OLD, "epoch-old", "note: claim older than our word, ours followed")            \
	X(34, ICMP, "icmp", "note: an ICMP error placed by the tuple it quotes")                   \
	X(35, CE, "ce", "note: outer CE copied to the inner packet")

enum ferry_reason {
#define X(n, id, name, text) FERRY_R_##id = n,
	FERRY_REASONS(X)
#undef X
	FERRY_R_COUNT
};

#endif
