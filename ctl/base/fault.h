/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault points: mechanisms that FERRY_FAULT (a list "name[=value],...") takes out or delays at run
 * time, so that a test can show what each of them is for. Without the variable nothing changes.
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdint.h>

#define FAULTS(X)                                                                                  \
	X(NO_INGRESS_FENCE, "no-ingress-fence") /* FENCED delivers */                             \
	X(NO_EGRESS_FENCE, "no-egress-fence")   /* no unit's egress is stopped */                 \
	X(NO_SEND_QUEUE, "no-send-queue") /* extract does not stay in the send queue */           \
	X(NO_ARRIVAL_CHECK, "no-arrival-check") /* flip without asking what arrived meanwhile */  \
	X(ARRIVED_ONCE, "arrived-once") /* the first look finds that something arrived */         \
	X(HOLD, "hold-ms")                      /* stay frozen that long before the flip */       \
	X(CLOSE_BEFORE_FLIP, "close-before-flip")                                                 \
	X(FLIP_BEFORE_RESTORE, "flip-before-restore")                                             \
	X(THAW_BEFORE_FLIP, "thaw-before-flip") /* destination thaws when prepared */             \
	X(ABORT_BEFORE_FLIP, "abort-before-flip")                                                 \
	X(DIE_ORIGIN, "die-origin") /* killed before that stage of the table, from 1 */           \
	X(DIE_DESTINATION, "die-destination") /* killed at that place, docs/MOVE.md */            \
	X(DIE_ABORTING, "die-aborting")       /* killed before that socket is thawed, from 1 */   \
	X(STOP_BEFORE_DROP, "stop-before-drop") /* SIGSTOP before rights are given up */          \
	X(NO_RIGHTS_CHECK, "no-rights-check")   /* start without a right that is needed */        \
	X(KEEP_RIGHTS, "keep-rights")           /* the capabilities of the start are kept */      \
	X(WITNESS_ANY, "witness-any") /* what ends in a task that closes is taken for lost */     \
	X(FORGETS, "kernel-forgets")  /* the kernel is taken for one that wakes nobody */         \
	X(NO_WAKE, "no-wake")         /* and nobody else does */                                  \
	X(NO_WITNESS, "no-witness")   /* the guard's witness cannot be loaded */                  \
	X(KEPT_MAX, "kept-max")       /* so many descriptors are kept for the next ferry-guard */

enum fault {
#define X(id, name) FAULT_##id,
	FAULTS(X)
#undef X
	FAULT_COUNT
};

/* Reads FERRY_FAULT. 0, or -EINVAL for a name that is none. */
int fault_init(void);
/* The point's value, 0 where it is not set (without "=value": 1). */
uint32_t fault(enum fault point);
/* Ends the process as SIGKILL would, where the point's value is place + 1. */
void fault_die(enum fault point, uint32_t place);

#endif
