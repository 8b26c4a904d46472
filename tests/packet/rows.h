/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One row of the packet tests: what stands in the tables, what comes in, what must come out. Only
 * what differs from the plain case is written down. A row runs for every kind of flow it names,
 * IPv4 and IPv6 inside, and IPv4 and IPv6 outside both on the way in and on the way out.
 */
#ifndef PACKET_ROWS_H
#define PACKET_ROWS_H

#include "env.h"

enum kind {
	K_TCP = 1,
	K_UDP = 2,
	K_BOUND = 4, /* UDP, the entry is the bound port */
	K_STASH = 8, /* TCP, the entry is in the stash */
	K_ICMP_TCP = 16, /* an error that quotes 8 octets of the flow's TCP */
	K_ICMP_UDP = 32,
	K_ICMP = K_ICMP_TCP | K_ICMP_UDP,
	K_ALL = 63,
};

enum want {
	PASS, /* bit for bit */
	DROP,
	SEND, /* in a tunnel to hop */
	DELIVER, /* passed, without the tunnel it came in */
};

enum at { AT_OUTER = 1, AT_UDP, AT_GENEVE, AT_OPTION, AT_INNER };
struct patch {
	enum at at;
	uint8_t offset, value; /* the octet there becomes value */
	uint8_t only; /* 4 or 6: where that header is IPv4 or IPv6; 0: both */
};

#define NOTE(id) (1ULL << FERRY_R_##id)
#define R_LOST FERRY_R_COUNT /* the one for the kind */
#define FIT 1 /* length: exactly the next hop's MTU with the tunnel */
#define FIT_PLUS_1 2

struct row {
	const char *name;
	unsigned int kinds; /* 0: TCP and UDP */
	/* tables */
	bool entry;
	uint8_t state;
	uint32_t epoch, hop, unit; /* unit 0: UNIT */
	uint32_t service; /* its next hop; 1: here; 0: no service */
	/* what comes in */
	bool tunnelled;
	uint32_t claim;
	uint8_t hops, from; /* from 0: node 2 */
	uint8_t outer_tos, tos, ttl; /* ttl 0: plenty */
	uint32_t ifindex; /* 0: lo */
	const char *tag; /* NULL: the right one */
	size_t length, pad;
	struct patch patch[2];
	/* what must come out */
	enum want want;
	unsigned int reason;
	uint64_t notes; /* but for ICMP, which follows from the kind */
	uint32_t stamp; /* epoch on the wire */
	bool ce; /* the inner packet is CE then */
	uint32_t raised, newer, lost; /* raised 0: the word is as it was */
};

#define UNIT 7

extern const struct row rows_steer[];
extern const size_t rows_steer_count;

/* Runs the row in every family; fails the running cmocka test. Marks its reason as produced. */
void row_run(struct env *e, const struct row *row);
/* The reasons that moved are exactly this one and these notes. */
void check_reasons(const struct result *r, unsigned int reason, uint64_t notes, const char *name);
void check_bytes(const struct buf *got, const struct buf *want, const char *name);
extern bool produced[FERRY_R_COUNT];

#endif
