/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What nodes send each other around a client's packet: GENEVE (RFC 8926) with the inner IP packet
 * and always this one option, of constant length. Fields are in network order.
 */
#ifndef FERRY_WIRE_H
#define FERRY_WIRE_H

#include <linux/types.h>

#define FERRY_GENEVE_PORT 6081
#define FERRY_GENEVE_VNI 0x00fe44     /* unless configured */
#define FERRY_GENEVE_CLASS 0xff44     /* experimental range, RFC 8926 section 7 */
#define FERRY_GENEVE_TYPE 0x81        /* critical: an epoch must not be stripped */
#define FERRY_GENEVE_CRITICAL 0x40    /* C bit of the base header's second byte */
#define FERRY_HOPS_MAX 8

struct ferry_geneve {
	__u8 ver_optlen; /* version:2, option length in words:6 */
	__u8 flags;
	__u16 protocol;
	__u8 vni[3];
	__u8 reserved;
};

struct ferry_option {
	__u16 class_;
	__u8 type;
	__u8 length; /* reserved:3, words of data:5 */
	__u32 epoch; /* 0: no claim, ring-routed */
	__u8 hops;   /* nodes that sent it on so far */
	__u8 flags;  /* 0 for now */
	__u16 second; /* second-chance node, 0 none */
	__u8 tag[8];  /* the fleet's, 0 where none is set */
};

#define FERRY_OPTION_WORDS ((sizeof(struct ferry_option) - 4) / 4)
#define FERRY_TUNNEL (8 + sizeof(struct ferry_geneve) + sizeof(struct ferry_option))
#define FERRY_OUTER4 (20 + FERRY_TUNNEL) /* added to an inner packet, octets */
#define FERRY_OUTER6 (40 + FERRY_TUNNEL)
_Static_assert(sizeof(struct ferry_geneve) == 8, "GENEVE base header");
_Static_assert(sizeof(struct ferry_option) == 20, "GENEVE option");
_Static_assert(FERRY_OUTER4 == 56 && FERRY_OUTER6 == 76, "overhead, as documented");

#endif
