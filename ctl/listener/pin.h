/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a ledger's counts are pinned, and who keeps them; for ledger.c. */
#ifndef LISTENER_PIN_H
#define LISTENER_PIN_H

#include "listener/ledger.h"

/* Makes and locks the directory. 0, -EBUSY: another process keeps it, or -errno: it cannot be made;
 * l->error says so. */
int pin_lock(struct ledger *l, const char *name);
/* In the place of what an earlier one left. 0 or -errno; l->error says so. */
int pin_maps(struct ledger *l, int rows, int totals);

#endif
