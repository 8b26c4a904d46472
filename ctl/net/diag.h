/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag: asks the kernel whether a connection is there. */
#ifndef DIAG_H
#define DIAG_H

#include <ferry/map.h>

/* fd: a sock_diag socket, which answers for the network namespace it was made in; -1: a fresh one,
 * in this. 1 where a socket has exactly this tuple (a connection in any state, TIME_WAIT too, or a
 * UDP socket with this name and peer), 0 where none has, or -errno. */
int diag_has_socket(int fd, const struct ferry_flow *flow);

#endif
