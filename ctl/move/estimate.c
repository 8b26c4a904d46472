// SPDX-License-Identifier: BSD-2-Clause
/* See estimate.h. The median, so that one move that met a busy machine does not spoil the next. */
#include <stdlib.h>
#include <string.h>
#include "move/estimate.h"

static double model(unsigned int sockets, uint64_t octets)
{
	return ESTIMATE_FIXED_US + ESTIMATE_SOCKET_US * sockets +
	       ESTIMATE_OCTET_NS * (double)octets / 1000;
}

void estimate_learn(struct estimate *e, double us, unsigned int sockets, uint64_t octets)
{
	e->ratio[e->count++ % ESTIMATE_KEPT] = us / model(sockets, octets);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double estimate_factor(const struct estimate *e)
{
	unsigned int n = e->count < ESTIMATE_KEPT ? e->count : ESTIMATE_KEPT;
	double sorted[ESTIMATE_KEPT];

	if (!n)
		return 1;
	memcpy(sorted, e->ratio, sizeof(sorted));
	qsort(sorted, n, sizeof(sorted[0]), by_size);
	return sorted[n / 2];
}

double estimate_freeze_us(const struct estimate *e, unsigned int sockets, uint64_t octets)
{
	return estimate_factor(e) * model(sockets, octets);
}
