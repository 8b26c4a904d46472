// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_REPAIR at the destination: an empty socket becomes the one that was extracted (tcp.c has the
 * picture of its queues). What was sent at the origin is put back as sent, in repair; what was not
 * is written by the application after the thaw, so that the kernel sends it at once.
 */
#include <linux/tcp.h>
#include <string.h>
#include "base/util.h"
#include "repair/repair.h"
#include "repair/sockopt.h"

#define CHUNK (64U << 10)
/* what TCP_MAXSEG takes: TCP_MIN_MSS, MAX_TCP_WINDOW (include/net/tcp.h) */
#define USER_MSS_MIN 88
#define USER_MSS_MAX 32767
/* TCP option kinds, RFC 9293 and 7323 */
#define TCPOPT_MAXSEG 2
#define TCPOPT_WINDOW 3
#define TCPOPT_SACK_PERM 4
#define TCPOPT_TIMESTAMP 8

/* The size of segments is worked out when the socket connects, from 536 (IPv6: 1220) unless it is
 * told, and not again when TCP_REPAIR_OPTIONS say the peer's (net/ipv4/tcp_output.c,
 * tcp_connect_init). */
static int set_segment_size(int fd, struct repair_image *image)
{
	uint32_t mss = image->mss < USER_MSS_MIN ? USER_MSS_MIN :
		       image->mss > USER_MSS_MAX ? USER_MSS_MAX :
						   image->mss;

	return opt_set_int(fd, IPPROTO_TCP, TCP_MAXSEG, (int)mss, image, "segment-size");
}

static int bind_and_connect(int fd, struct repair_image *image)
{
	const struct ferry_flow *f = &image->flow;
	struct sockaddr_storage ss, have;
	socklen_t size = sizeof(have);
	uint8_t addr[16];
	uint16_t port = 0;

	image->step = "bind";
	if (getsockname(fd, (struct sockaddr *)&have, &size) ||
	    addr_from_sockaddr(&have, addr, &port))
		return -errno;
	if (port && (port != f->dport || memcmp(addr, f->daddr, 16)))
		return -EADDRINUSE;
	if (!port) { /* not bound by repair_claim() */
		size = addr_to_sockaddr(f->daddr, f->dport, image->v6_socket, &ss);
		if (bind(fd, (struct sockaddr *)&ss, size))
			return -errno;
	}
	image->step = "connect";
	size = addr_to_sockaddr(f->saddr, f->sport, image->v6_socket, &ss);
	if (!connect(fd, (struct sockaddr *)&ss, size))
		return 0;
	return errno == EADDRNOTAVAIL ? -EADDRINUSE : -errno; /* tcp_v4_connect: tuple taken */
}

int repair_claim(int fd, struct repair_image *image)
{
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return udp_restore(fd, image);
	r = opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON, image, "repair-on");
	r = r ? r : bind_and_connect(fd, image);
	if (!r) {
		image->step = "unclaim";
		r = tcp_disconnect(fd);
	}
	return r;
}

static int restore_options(int fd, struct repair_image *image)
{
	struct tcp_repair_opt opts[4] = { { TCPOPT_MAXSEG, image->mss } };
	unsigned int n = 1;
	uint32_t timestamp = (image->timestamp & ~1U) + 2; /* above what was sent last */
	int r;

	image->step = "timestamp-unit";
	if (image->usec && !tcp_kernel_has_usec())
		return -EOPNOTSUPP;
	if (image->options & TCPI_OPT_WSCALE)
		opts[n++] = (struct tcp_repair_opt){
			TCPOPT_WINDOW, image->snd_wscale | (uint32_t)image->rcv_wscale << 16
		};
	if (image->options & TCPI_OPT_SACK)
		opts[n++] = (struct tcp_repair_opt){ TCPOPT_SACK_PERM, 0 };
	if (image->options & TCPI_OPT_TIMESTAMPS)
		opts[n++] = (struct tcp_repair_opt){ TCPOPT_TIMESTAMP, 0 };
	r = opt_set(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, opts, n * (socklen_t)sizeof(opts[0]),
		    image, "options");
	return r ? r : opt_set_int(fd, IPPROTO_TCP, TCP_TIMESTAMP,
				   (int)(timestamp | image->usec), image, "timestamp");
}

/* The forced size locks autotuning; the lock goes where the origin had none. */
static int size_buffers(int fd, struct repair_image *image)
{
	uint32_t send = image->outq + CHUNK, recv = image->inq + CHUNK;
	int r;

	if (image->buf_lock & SOCK_SNDBUF_LOCK && send < image->sndbuf / 2)
		send = image->sndbuf / 2; /* the kernel doubles what is set */
	if (image->buf_lock & SOCK_RCVBUF_LOCK && recv < image->rcvbuf / 2)
		recv = image->rcvbuf / 2;
	r = opt_set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, (int)send, image, "sndbuf");
	return r ? r : opt_set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, (int)recv, image, "rcvbuf");
}

static int fill(int fd, int queue, const uint8_t *data, uint32_t size, struct repair_image *image,
		const char *step)
{
	int r = tcp_select_queue(fd, queue, image);

	image->step = step;
	for (uint32_t done = 0; !r && done < size;) {
		uint32_t chunk = size - done < CHUNK ? size - done : CHUNK;
		ssize_t n = send(fd, data + done, chunk, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			r = -errno;
		else
			done += (uint32_t)n;
	}
	return r;
}

static int set_sequence(int fd, int queue, uint32_t seq, struct repair_image *image)
{
	int r = tcp_select_queue(fd, queue, image);

	return r ? r : opt_set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &seq, sizeof(seq), image, "set-seq");
}

int repair_restore(int fd, struct repair_image *image)
{
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return udp_restore(fd, image);
	r = opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON, image, "repair-on");
	if (!r && image->filled) /* a second time: empty again */
		r = tcp_disconnect(fd);
	image->filled = true;
	r = r ? r : set_sequence(fd, TCP_SEND_QUEUE, image->write_seq - image->outq, image);
	r = r ? r : set_sequence(fd, TCP_RECV_QUEUE, image->rcv_nxt - image->inq, image);
	r = r ? r : set_segment_size(fd, image);
	r = r ? r : bind_and_connect(fd, image);
	r = r ? r : restore_options(fd, image);
	r = r ? r : size_buffers(fd, image);
	r = r ? r : fill(fd, TCP_RECV_QUEUE, image->recv, image->inq, image, "recv-fill");
	r = r ? r : fill(fd, TCP_SEND_QUEUE, image->send, image->outq - image->unsent, image,
			 "send-fill");
	r = r ? r : tcp_select_queue(fd, TCP_NO_QUEUE, image);
	/* after the receive queue: the kernel checks it against rcv_nxt */
	r = r ? r : opt_set(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &image->window,
			    sizeof(image->window), image, "window");
	return r ? r : opt_set_int(fd, IPPROTO_TCP, TCP_NODELAY, (int)image->nodelay, image,
				   "nodelay");
}

int repair_thaw(int fd, struct repair_image *image)
{
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return 0;
	/* without its window probe, which repair_probe() sends once the answer is let in: a peer
	 * answers one in half a second (net/ipv4/tcp_input.c, tcp_oow_rate_limited) */
	r = opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP, image, "repair-off");
	r = r ? r : tcp_set_back(fd, image);
	if (!r && !image->unsent) /* else the library does it, once it has written them */
		r = opt_set_int(fd, SOL_SOCKET, SO_BUF_LOCK, (int)image->buf_lock, image,
				"buf-lock");
	return r;
}

int repair_probe(int fd, struct repair_image *image)
{
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return 0;
	r = opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON, image, "probe");
	r = r ? r : opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF, image, "probe");
	return r ? r : opt_set_int(fd, SOL_SOCKET, SO_REUSEADDR, (int)image->reuseaddr, image,
				   "reuseaddr");
}

void repair_discard(int fd)
{
	tcp_disconnect(fd);
}

void repair_image_clear(struct repair_image *image)
{
	free(image->recv);
	free(image->send);
	image->recv = image->send = NULL;
	for (struct datagram *d = image->datagrams, *next; d; d = next) {
		next = d->next;
		free(d);
	}
	image->datagrams = NULL;
}
