/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag: asks the kernel whether a connection is there. */
#ifndef DIAG_H
#define DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <ferry/map.h>

/* Whether this kernel can be asked for a protocol's sockets: where tcp_diag or udp_diag is not
 * loaded, and cannot be, it says of every socket that it is not there. */
bool diag_answers(uint8_t proto);

/* fd: a sock_diag socket, which answers for the network namespace it was made in; -1: a fresh one,
 * in this. 1 where a socket has exactly this tuple (a connection in any state, TIME_WAIT too, or a
 * UDP socket with this name and peer), 0 where none has, or -errno: -EOPNOTSUPP it cannot be
 * asked. */
int diag_has_socket(int fd, const struct ferry_flow *flow);

#endif
