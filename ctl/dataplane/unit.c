// SPDX-License-Identifier: BSD-2-Clause
/* Unit words and records in mapped memory. A freed unit is used again after a grace period. */
#include <string.h>
#include "dataplane/dataplane.h"

static const char *const states[FERRY_STATES] = {
	[FERRY_FREE] = "free",     [FERRY_LOCAL] = "local",   [FERRY_FENCED] = "fenced",
	[FERRY_PREPARED] = "prepared", [FERRY_OPENING] = "opening", [FERRY_REMOTE] = "remote",
	[FERRY_GONE] = "gone",
};

const char *state_name(uint32_t state)
{
	return state < FERRY_STATES ? states[state] : "invalid";
}

uint64_t unit_word(const struct dataplane *d, uint32_t unit)
{
	return __atomic_load_n(&d->words[unit], __ATOMIC_ACQUIRE);
}

bool unit_swap(struct dataplane *d, uint32_t unit, uint64_t from, uint64_t to)
{
	__u64 expected = from;

	return __atomic_compare_exchange_n(&d->words[unit], &expected, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_ACQUIRE);
}

struct ferry_record *unit_record(const struct dataplane *d, uint32_t unit)
{
	return &d->records[unit];
}

static bool usable(const struct dataplane *d, uint32_t unit)
{
	return FERRY_WORD_STATE(unit_word(d, unit)) == FERRY_FREE && !d->unit_freed[unit];
}

static uint32_t find_usable(struct dataplane *d)
{
	for (uint32_t i = 0; i < d->control.units; i++) {
		uint32_t unit = (d->next_unit + i) % d->control.units;

		if (unit && usable(d, unit)) {
			d->next_unit = unit + 1;
			return unit;
		}
	}
	return 0;
}

uint32_t unit_alloc(struct dataplane *d)
{
	uint32_t unit = find_usable(d);

	if (!unit && !dataplane_grace(d))
		unit = find_usable(d);
	if (unit)
		memset(&d->records[unit], 0, sizeof(d->records[unit]));
	return unit;
}

void unit_free(struct dataplane *d, uint32_t unit)
{
	__atomic_store_n(&d->words[unit], 0, __ATOMIC_RELEASE);
	d->unit_freed[unit] = 1;
}

uint32_t unit_by_uuid(const struct dataplane *d, const uint8_t uuid[16])
{
	for (uint32_t unit = 1; unit < d->control.units; unit++) {
		if (FERRY_WORD_STATE(unit_word(d, unit)) != FERRY_FREE &&
		    !memcmp(d->records[unit].uuid, uuid, 16))
			return unit;
	}
	return 0;
}
