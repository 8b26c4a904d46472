/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options as the repair code uses them: each call names its step. */
#ifndef SOCKOPT_H
#define SOCKOPT_H

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "repair/repair.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* since Linux 5.15 */
#endif

/* tcp.c, for restore.c too */
int tcp_select_queue(int fd, int queue, struct repair_image *image);
/* Disconnects every duplicate, without a packet (net/ipv4/tcp.c, tcp_disconnect in repair). */
int tcp_disconnect(int fd);
/* What repair_freeze() and TCP_REPAIR itself have changed. */
int tcp_set_back(int fd, struct repair_image *image);
/* Timestamps in microseconds show as bit 0 of TCP_TIMESTAMP, on kernels that have them. */
bool tcp_kernel_has_usec(void);

static inline int opt_set(int fd, int level, int name, const void *value, socklen_t size,
			  struct repair_image *image, const char *step)
{
	image->step = step;
	return setsockopt(fd, level, name, value, size) ? -errno : 0;
}

static inline int opt_set_int(int fd, int level, int name, int value, struct repair_image *image,
			      const char *step)
{
	return opt_set(fd, level, name, &value, sizeof(value), image, step);
}

static inline int opt_get(int fd, int level, int name, void *value, socklen_t size,
			  struct repair_image *image, const char *step)
{
	socklen_t got = size;

	image->step = step;
	if (getsockopt(fd, level, name, value, &got))
		return -errno;
	return got == size ? 0 : -EPROTO;
}

/* Where the application peeks (SO_PEEK_OFF), kept as one more, 0: nowhere. A peek of ours would
 * start there, and move it. TCP has it since Linux 6.9. */
static inline int peek_off_take(int fd, int own, struct repair_image *image)
{
	int at = -1;
	int r = opt_get(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at), image, "peek-off");

	if (r == -EOPNOTSUPP)
		return 0;
	image->peek_off = at < 0 ? 0 : (uint32_t)at + 1;
	return r || (at < 0 && own < 0) ?
		       r :
		       opt_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, own, image, "peek-off");
}

/* own: what was set instead. */
static inline int peek_off_give(int fd, int own, struct repair_image *image)
{
	int at = (int)image->peek_off - 1;

	return at < 0 && own < 0 ? 0 :
				   opt_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, at, image, "peek-off");
}

#endif
