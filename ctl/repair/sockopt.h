/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options as the repair code uses them: each call names its step. */
#ifndef SOCKOPT_H
#define SOCKOPT_H

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "repair/repair.h"

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

#endif
