/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag: asks the kernel, in the agent's network namespace, whether a connection is there. */
#ifndef DIAG_H
#define DIAG_H

#include <ferry/map.h>

/* The TCP state (linux/tcp_states: 1 ESTABLISHED ... 6 TIME_WAIT) of the socket with exactly this
 * tuple, 0 where there is none, or -errno. */
int diag_tcp_state(const struct ferry_flow *flow);

#endif
