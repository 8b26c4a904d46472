/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag: asks the kernel, in the agent's network namespace, whether a connection is there. */
#ifndef DIAG_H
#define DIAG_H

#include <ferry/map.h>

/* 1 where a socket has exactly this tuple (a connection in any state, TIME_WAIT too, or a UDP
 * socket with this name and peer), 0 where none has, or -errno. */
int diag_has_socket(const struct ferry_flow *flow);

#endif
