// SPDX-License-Identifier: BSD-2-Clause
/*
 * TCP_REPAIR at the origin: freeze, extract, close or thaw (restore.c is the destination's half).
 *
 *   receive queue      |<----- inq ----->|
 *               copied |     unread      | rcv_nxt
 *
 *   send queue         |<-------------- outq --------------->|
 *              snd_una |  sent, not acknowledged  |  unsent  | write_seq
 *
 * A restored socket starts at rcv_nxt - inq and write_seq - outq. What was sent is put back as
 * sent, in repair; what was not is written by the application after the thaw, as any data, so that
 * the kernel sends it at once and not at a timeout.
 */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include "base/fault.h"
#include "base/util.h"
#include "repair/repair.h"
#include "repair/sockopt.h"

#define TCP_ESTABLISHED 1
#define SETTLE_LOOKS 64

static int get_info(int fd, struct tcp_info *info, struct repair_image *image)
{
	socklen_t size = sizeof(*info);

	memset(info, 0, sizeof(*info));
	image->step = "info";
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) ? -errno : 0;
}

static int queue_size(int fd, unsigned long request, uint32_t *size, struct repair_image *image,
		      const char *step)
{
	int n = 0;

	image->step = step;
	if (ioctl(fd, request, &n))
		return -errno;
	if (n < 0 || (unsigned int)n > REPAIR_QUEUE_MAX)
		return -EMSGSIZE;
	*size = (uint32_t)n;
	return 0;
}

bool tcp_kernel_has_usec(void)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;

	if (uname(&u) || sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > 6 || (major == 6 && minor >= 7);
}

/* Packets that passed the fence before its store may still be on their way up. */
static int settle(int fd, struct repair_image *image)
{
	struct tcp_info before, now;
	int same = 0;
	int r = get_info(fd, &before, image);

	for (int i = 0; !r && i < SETTLE_LOOKS && same < 2; i++) {
		r = get_info(fd, &now, image);
		same = now.tcpi_segs_in == before.tcpi_segs_in ? same + 1 : 0;
		before = now;
	}
	if (r)
		return r;
	image->step = "settle";
	if (same < 2)
		return -EBUSY;
	image->step = "state";
	return now.tcpi_state == TCP_ESTABLISHED ? 0 : -ENOTCONN;
}

int repair_freeze(int fd, struct repair_image *image)
{
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return udp_freeze(fd, image);
	r = settle(fd, image);
	if (image->frozen)
		return r; /* a second time: what changed the first time stays so */
	/* repair forces it, so it is read before */
	r = r ? r : opt_get(fd, SOL_SOCKET, SO_REUSEADDR, &image->reuseaddr, 4, image, "reuseaddr");
	r = r ? r : opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON, image, "repair-on");
	if (r)
		return r;
	image->frozen = true;
	/* a frozen socket whose client cannot answer would otherwise kill itself */
	r = opt_get(fd, SOL_SOCKET, SO_KEEPALIVE, &image->keepalive, 4, image, "keepalive");
	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &image->user_timeout, 4, image,
			    "user-timeout");
	if (!r && image->keepalive)
		r = opt_set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 0, image, "keepalive-off");
	if (!r && image->user_timeout)
		r = opt_set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0, image, "user-timeout-off");
	return r ? r : peek_off_take(fd, -1, image);
}

/* Copies exactly size octets of the selected queue: one more would mean that it moved. */
static int peek(int fd, uint32_t size, uint8_t **data, struct repair_image *image,
		const char *step)
{
	ssize_t n;

	image->step = step;
	free(*data);
	*data = malloc(size + 1);
	if (!*data)
		return -ENOMEM;
	if (!size)
		return 0;
	n = recv(fd, *data, size + 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EBUSY;
}

int tcp_select_queue(int fd, int queue, struct repair_image *image)
{
	return opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue, image, "select-queue");
}

/* SIOCINQ stops at an urgent octet (net/ipv4/tcp.c, tcp_inq), and what lies behind it would be
 * lost: not so while SO_OOBINLINE is set. */
static int refuse_urgent(int fd, struct repair_image *image)
{
	uint32_t whole = 0;
	int inlined = 0;
	int r = opt_get(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, 4, image, "urgent-data");

	if (r || inlined)
		return r; /* counted whole; a peek of it stops short, which is found */
	r = opt_set_int(fd, SOL_SOCKET, SO_OOBINLINE, 1, image, "urgent-data");
	r = r ? r : queue_size(fd, SIOCINQ, &whole, image, "urgent-data");
	r = r ? r : opt_set_int(fd, SOL_SOCKET, SO_OOBINLINE, 0, image, "urgent-data");
	return !r && whole != image->inq ? -ENODATA : r;
}

static int extract_recv(int fd, struct repair_image *image)
{
	int r = queue_size(fd, SIOCINQ, &image->inq, image, "recv-size");

	r = r ? r : refuse_urgent(fd, image);
	r = r ? r : tcp_select_queue(fd, TCP_RECV_QUEUE, image);
	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &image->rcv_nxt, 4, image, "recv-seq");
	return r ? r : peek(fd, image->inq, &image->recv, image, "recv-peek");
}

/* The send queue is selected before it is measured: from then on the kernel sends none of it but by
 * a timer, which makes unsent octets sent ones, and is stopped by the fence only. */
static int extract_send(int fd, struct repair_image *image)
{
	int r = tcp_select_queue(fd, TCP_SEND_QUEUE, image);

	r = r ? r : queue_size(fd, SIOCOUTQNSD, &image->unsent, image, "unsent-size");
	r = r ? r : queue_size(fd, SIOCOUTQ, &image->outq, image, "send-size");
	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &image->write_seq, 4, image,
			    "send-seq");
	r = r ? r : peek(fd, image->outq, &image->send, image, "send-peek");
	if (!r && image->unsent > image->outq)
		r = -EBUSY;
	if (!r && fault(FAULT_NO_SEND_QUEUE))
		r = tcp_select_queue(fd, TCP_NO_QUEUE, image);
	return r;
}

static int extract_options(int fd, struct repair_image *image)
{
	int r = opt_get(fd, IPPROTO_TCP, TCP_TIMESTAMP, &image->timestamp, 4, image, "timestamp");

	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_MAXSEG, &image->mss, 4, image, "mss");
	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &image->window,
			    sizeof(image->window), image, "window");
	r = r ? r : opt_get(fd, SOL_SOCKET, SO_SNDBUF, &image->sndbuf, 4, image, "sndbuf");
	r = r ? r : opt_get(fd, SOL_SOCKET, SO_RCVBUF, &image->rcvbuf, 4, image, "rcvbuf");
	r = r ? r : opt_get(fd, SOL_SOCKET, SO_BUF_LOCK, &image->buf_lock, 4, image, "buf-lock");
	r = r ? r : opt_get(fd, IPPROTO_TCP, TCP_NODELAY, &image->nodelay, 4, image, "nodelay");
	return r;
}

int repair_extract(int fd, struct repair_image *image)
{
	struct tcp_info info;
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return udp_extract(fd, image);
	r = get_info(fd, &info, image);
	r = r ? r : extract_recv(fd, image);
	r = r ? r : extract_send(fd, image);
	r = r ? r : extract_options(fd, image);
	if (r)
		return r;
	image->options = info.tcpi_options;
	image->usec = info.tcpi_options & TCPI_OPT_TIMESTAMPS && image->timestamp & 1 &&
		      tcp_kernel_has_usec();
	image->snd_wscale = info.tcpi_snd_wscale;
	image->rcv_wscale = info.tcpi_rcv_wscale;
	image->received = info.tcpi_bytes_received;
	image->segments = info.tcpi_segs_in;
	return 0;
}

int repair_arrived(int fd, const struct repair_image *image)
{
	struct repair_image scratch = {};
	struct tcp_info info;
	int r;

	if (image->flow.proto == IPPROTO_UDP)
		return udp_arrived(fd);
	r = get_info(fd, &info, &scratch);
	if (r)
		return r;
	return info.tcpi_bytes_received != image->received ||
	       info.tcpi_segs_in != image->segments || info.tcpi_state != TCP_ESTABLISHED;
}

int tcp_disconnect(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	return connect(fd, &none, sizeof(none)) ? -errno : 0;
}

int repair_close(int fd, struct repair_image *image)
{
	int r = tcp_disconnect(fd);

	image->step = "close";
	image->frozen = false;
	/* in repair the application would read EPERM, not ECONNABORTED; CLOSED sends no probe */
	return r ? r :
		   opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF, image, "repair-off");
}

int tcp_set_back(int fd, struct repair_image *image)
{
	int r = opt_set_int(fd, SOL_SOCKET, SO_REUSEADDR, (int)image->reuseaddr, image,
			    "reuseaddr");

	r = r ? r : opt_set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)image->user_timeout, image,
				"user-timeout-on");
	if (!r && image->keepalive)
		r = opt_set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1, image, "keepalive-on");
	return r ? r : peek_off_give(fd, -1, image);
}

int repair_unfreeze(int fd, struct repair_image *image)
{
	int r;

	if (!image->frozen)
		return 0;
	image->frozen = false;
	if (image->flow.proto == IPPROTO_UDP)
		return udp_unfreeze(fd, image);
	r = opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP, image, "repair-off");
	return r ? r : tcp_set_back(fd, image);
}
