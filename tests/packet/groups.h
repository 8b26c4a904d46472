/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The groups of test_packet beside the rows; each opens an environment of its own and returns how
 * many of its tests failed.
 */
#ifndef PACKET_GROUPS_H
#define PACKET_GROUPS_H

int run_egress(void);
int run_corpus(void);
int run_steps(void);

#endif
