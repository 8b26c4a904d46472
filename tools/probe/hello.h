/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The payloads of control messages between probe-client and probe-server.
 *
 *   client                          server
 *   HELLO (message 0 of each TCP connection)
 *                                   COMPLETE, on each, when all of the unit have come
 *   data ...                        data ...
 *   END                             END (after all that it sent), with what it counted
 *   half-close                      close
 *
 * Invariant: the layouts are the same in both programs of one build; in the host's byte order.
 */
#ifndef PROBE_HELLO_H
#define PROBE_HELLO_H

#include <stdint.h>

#include "net.h"
#include "stream.h"

#define UNIT_TCP_MAX 250u
/* A datagram must pass a tunnel without fragments. */
#define UDP_MAX_LEN 1200u

enum unit_udp {
	UNIT_UDP_NONE,
	UNIT_UDP_UNCONNECTED,
	UNIT_UDP_CONNECTED,
};

struct hello {
	uint64_t unit;	 /* below 2^52: exact in every JSON reader */
	uint32_t index;	 /* of this connection in its unit */
	uint32_t tcp;	 /* how many TCP connections the unit has */
	uint32_t udp;	 /* enum unit_udp */
	uint32_t udp_conn; /* connection id of the UDP stream */
	union address udp_address; /* the client's UDP socket */
};

struct complete {
	int32_t udp_error; /* 0 or an errno: there is no UDP socket */
	uint32_t zero;
};

struct end_report {
	uint64_t sent; /* messages of this connection, END included */
	struct stream_counts received;
	uint64_t udp_sent; /* of the unit, told on its connection 0 */
	struct stream_counts udp_received;
};

#endif
