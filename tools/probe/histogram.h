/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts values in buckets of 1/16 of their power of two: quantiles within 6 %, the maximum exact,
 * in constant memory however many there are.
 *
 * Keeps no order and no time: which value came when is for others.
 *
 * Invariant: total is the sum of all buckets.
 */
#ifndef PROBE_HISTOGRAM_H
#define PROBE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB 16u

struct histogram {
	uint64_t total, max;
	uint64_t buckets[64 * HISTOGRAM_SUB];
};

static inline unsigned int histogram_bucket(uint64_t v)
{
	unsigned int top;

	if (v < HISTOGRAM_SUB)
		return (unsigned int)v;
	top = 63u - (unsigned int)__builtin_clzll(v);
	return (top - 3) * HISTOGRAM_SUB + ((v >> (top - 4)) & (HISTOGRAM_SUB - 1));
}

static inline void histogram_add(struct histogram *h, uint64_t v)
{
	h->total++;
	h->buckets[histogram_bucket(v)]++;
	if (v > h->max)
		h->max = v;
}

/* The least value such that this share of all is not above it; 0 of nothing. */
static inline uint64_t histogram_quantile(const struct histogram *h, double share)
{
	uint64_t rank = (uint64_t)((double)h->total * share), seen = 0;

	for (unsigned int i = 0; i < 64 * HISTOGRAM_SUB && h->total; i++) {
		uint64_t low = i % HISTOGRAM_SUB;

		seen += h->buckets[i];
		if (seen <= rank)
			continue;
		if (i < HISTOGRAM_SUB)
			return low;
		low = (HISTOGRAM_SUB + low) << (i / HISTOGRAM_SUB - 1);
		return low < h->max ? low : h->max;
	}
	return h->max;
}

#endif
