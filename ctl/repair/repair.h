/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The socket half of a move, TCP by TCP_REPAIR, UDP by peeking. A contract in its order; all calls
 * need CAP_NET_ADMIN over the socket's network namespace, none needs to be in it.
 *
 *   origin                                   destination, on an empty socket that was lent
 *   1 repair_check()   can it move?
 *                                            2 repair_claim()   address and tuple free? bound now
 *     (fenced both ways from here on)
 *   3 repair_freeze()  until nothing came twice in a row; repair on, timers off
 *   4 repair_extract() receive side first, then the send queue, and stay selected there
 *                                            5 repair_restore() filled, still in repair
 *   6 repair_arrived() what came since 4?
 *     (the flip)                             7 repair_thaw()    sends nothing
 *                                              (packets are let in)
 *                                            8 repair_probe()   a window probe: the peer
 *                                                               acknowledges at once
 *   9 repair_close()   silently              (the unsent bytes are written by the application)
 *   or repair_unfreeze(), then 8: goes on    or repair_discard()
 *
 * Queues, with sequence numbers (tcp.c has the picture). Selected, the send queue keeps back what
 * was never sent; it does not stop the retransmission timer and the tail loss probe, which send
 * that too (selftests/kernel/repair_send_queue.c), nor acknowledgements. So the caller's invariant:
 * from 3 on, until it is closed or thawed, nothing that a socket sends leaves the node.
 * On failure a function returns -errno and image->step says which step of it. -EMSGSIZE: a queue is
 * too big, -ENODATA: urgent data waits.
 */
#ifndef REPAIR_H
#define REPAIR_H

#include <linux/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ferry/map.h>

#define REPAIR_QUEUE_MAX (16U << 20) /* octets a queue; larger ones are refused */

struct datagram {
	struct datagram *next;
	uint8_t from[16];
	uint16_t port; /* network order */
	size_t size;
	uint8_t data[];
};

/* A socket on its way. Sequence numbers and windows as the kernel gives them. */
struct repair_image {
	struct ferry_flow flow; /* remote = source */
	char role[16];
	bool v6_socket;
	bool connected; /* UDP */
	bool frozen;
	bool filled; /* destination: repair_restore() has begun */
	const char *step;

	uint32_t rcv_nxt, write_seq;
	uint32_t mss, options; /* TCPI_OPT_* */
	uint8_t snd_wscale, rcv_wscale;
	uint32_t timestamp;
	bool usec; /* timestamps in microseconds (since Linux 6.7) */
	struct tcp_repair_window window;
	uint32_t inq, outq, unsent;
	uint8_t *recv, *send; /* inq and outq octets; the last unsent of send never left */
	uint64_t received; /* tcpi_bytes_received and segments in, when extracted */
	uint32_t segments;

	struct datagram *datagrams; /* UDP, oldest first */

	/* socket options */
	uint32_t sndbuf, rcvbuf, buf_lock;
	uint32_t keepalive, user_timeout; /* switched off while frozen */
	uint32_t nodelay, reuseaddr;
	uint32_t peek_off; /* SO_PEEK_OFF and one, 0: off */
};

/* Fills flow, v6_socket, connected. 0, or -EINVAL and a refusal's id (move/refusal.h). */
int repair_check(int fd, struct repair_image *image, const char **refusal);

/* The same three of any TCP or UDP socket with a name, in repair too. 0 or -EINVAL. */
int repair_identify(int fd, struct repair_image *image);
bool repair_is_tcp(int fd);
/* Whether it is in repair; of UDP there is no telling: true. */
bool repair_is_frozen(int fd);

/* Whether it is a socket as image wants one, fresh: no name, no peer, never used. */
bool repair_is_empty(int fd, const struct repair_image *image);

int repair_freeze(int fd, struct repair_image *image);
int repair_extract(int fd, struct repair_image *image);
/* 1 where a segment or datagram arrived since repair_extract(), or the application ended the
 * connection; 0 not, or -errno. Then 3, 4 and 5 can be done once more on the same sockets. */
int repair_arrived(int fd, const struct repair_image *image);
int repair_close(int fd, struct repair_image *image);
int repair_unfreeze(int fd, struct repair_image *image);

/* -EADDRINUSE: the tuple lives here already. */
int repair_claim(int fd, struct repair_image *image);
int repair_restore(int fd, struct repair_image *image);
int repair_thaw(int fd, struct repair_image *image);
int repair_probe(int fd, struct repair_image *image);
void repair_discard(int fd);

/* Frees the queues, not the image. */
void repair_image_clear(struct repair_image *image);

/* udp.c */
int udp_freeze(int fd, struct repair_image *image);
int udp_extract(int fd, struct repair_image *image);
int udp_unfreeze(int fd, struct repair_image *image);
int udp_arrived(int fd);
int udp_restore(int fd, struct repair_image *image);

#endif
