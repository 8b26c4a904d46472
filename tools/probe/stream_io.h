/* SPDX-License-Identifier: BSD-2-Clause */
/* What client and server do alike with a stream and its socket: pace it, and send it. */
#ifndef STREAM_IO_H
#define STREAM_IO_H

#include "stream.h"

/* Whether the next message of a stream of rate messages/s (0: as fast as possible) is due; then due
 * is set to the one after it. One that is late catches up, but not for longer than 100 ms. */
int stream_is_due(uint64_t *due, uint64_t rate, uint64_t now);

/* Sends what is left of the message, and those that next() makes (0, or -EAGAIN: none now). 0:
 * nothing more to send now; -EAGAIN: the socket is full, or others should have their turn. */
int stream_send(int fd, struct stream_tx *tx, int (*next)(void *arg, uint64_t now), void *arg,
		uint64_t now);

#endif
