/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames for the packet tests, built octet by octet from the RFCs and docs/DESIGN.md. Shares no
 * code with bpf/, not even the wire header: what a test expects must not come from what it tests.
 *
 * The cast, everywhere: client 198.51.100.7 / 2001:db8::7 port 40000, service 203.0.113.10 /
 * 2001:db8:0:1::10 port 443, node n at 192.0.2.n / 2001:db8:ffff::n; we are node 1.
 */
#ifndef PACKET_BUILD_H
#define PACKET_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX 12288
#define ETH 14 /* octets */
#define OVERHEAD(v6) ((v6) ? 76 : 56)
#define GENEVE_AT(v6) (ETH + ((v6) ? 40 : 20) + 8)
#define OPTION_AT(v6) (GENEVE_AT(v6) + 8)
#define CLIENT_PORT 40000
#define SERVICE_PORT 443
#define STRANGER 66 /* a node number of nobody */
#define TAG "\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"

struct buf {
	size_t n;
	uint8_t b[FRAME_MAX];
};

struct inner {
	bool v6;
	bool icmp; /* an error that quotes what its receiver had sent */
	bool reply; /* service to client */
	uint8_t proto; /* 6 or 17, of the quoted packet where icmp */
	uint8_t ttl, tos;
	size_t length; /* of the IP packet; 0: a few octets of payload */
};

struct outer {
	bool v6;
	uint8_t tos;
	uint8_t from, to; /* nodes */
	uint8_t hops;
	uint32_t epoch;
	uint16_t sport;
	const char *tag;
};

void put(struct buf *o, const void *data, size_t n);
void put8(struct buf *o, uint8_t v);
void put16(struct buf *o, uint16_t v);
void put32(struct buf *o, uint32_t v);
/* RFC 1071 over n octets, sum carried in and out unfolded by the caller's choice of 0. */
uint16_t checksum(const void *data, size_t n, uint32_t sum);

/* 16 octets; IPv4 v4-mapped. */
void addr_client(uint8_t out[16], bool v6);
void addr_service(uint8_t out[16], bool v6);
void addr_node(uint8_t out[16], bool v6, uint8_t node);

/* Appends the IP packet. */
void build_inner(struct buf *o, const struct inner *i);
/* Appends IP, UDP, GENEVE and the option in front of n octets of an inner packet. */
void build_outer(struct buf *o, const struct outer *t, bool inner_v6, const void *inner, size_t n);
/* Ethernet as nodes and clients send to us, and as we send to a node. */
void eth_in(struct buf *o, bool v6);
void eth_out(struct buf *o, bool v6, uint8_t node);

#endif
