// SPDX-License-Identifier: BSD-2-Clause
/* See stream_io.h. */
#include "stream_io.h"

#include <errno.h>
#include <sys/socket.h>

#include "net.h"

#define MESSAGES_A_ROUND 16
#define LATE_MAX (100 * NSEC_PER_MSEC)

int stream_is_due(uint64_t *due, uint64_t rate, uint64_t now)
{
	if (!rate)
		return 1;
	if (now < *due)
		return 0;
	*due += NSEC_PER_SEC / rate;
	if (*due + LATE_MAX < now)
		*due = now - LATE_MAX;
	return 1;
}

int stream_send(int fd, struct stream_tx *tx, int (*next)(void *arg, uint64_t now), void *arg,
		uint64_t now)
{
	for (int i = 0; i < MESSAGES_A_ROUND; i++) {
		if (!stream_tx_left(tx)) {
			int err = next(arg, now);

			if (err)
				return err == -EAGAIN ? 0 : err;
		}
		while (stream_tx_left(tx)) {
			ssize_t n = send(fd, stream_tx_at(tx), stream_tx_left(tx), MSG_NOSIGNAL);

			if (n < 0)
				return -errno;
			stream_tx_advance(tx, (size_t)n);
		}
	}
	return -EAGAIN;
}
