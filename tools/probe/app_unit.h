/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between app.c and app_unit.c only: libferry's callbacks and the list of units.
 *
 * Not for the applications, which see app.h.
 *
 * Invariant: a unit is freed by app_units_reap() only, between two rounds of events.
 */
#ifndef PROBE_APP_UNIT_H
#define PROBE_APP_UNIT_H

#include "app.h"

/* For ferry_open() with the struct app as its argument. */
extern const struct ferry_ops app_ferry_ops;
/* The agent is gone (-errno), or there again: arg is the struct app. */
void app_connected(int error, void *arg);
void app_units_reap(struct app *a);

#endif
