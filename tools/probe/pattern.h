/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pseudo-random octet stream, a function of (seed, offset) and nothing else: both ends can make
 * any part of it without having made what is before it. Not for secrets.
 *
 * Invariant: octet n is octet n % 8 of word n / 8, little-endian; changing that changes the files
 * that probe-http serves and every checksum made of them.
 */
#ifndef PROBE_PATTERN_H
#define PROBE_PATTERN_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* splitmix64 as a counter: word i needs no other word. */
static inline uint64_t pattern_word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* Writes n octets of the stream of seed, from offset on. */
static inline void pattern_fill(uint8_t *out, size_t n, uint64_t seed, uint64_t offset)
{
	while (n) {
		uint64_t word = htole64(pattern_word(seed, offset / 8));
		size_t skip = offset % 8, part = 8 - skip < n ? 8 - skip : n;

		memcpy(out, (uint8_t *)&word + skip, part);
		out += part;
		offset += part;
		n -= part;
	}
}

/* Are these n octets the beginning of the stream of seed? */
static inline int pattern_matches(const uint8_t *in, size_t n, uint64_t seed)
{
	for (uint64_t i = 0; n; i++) {
		uint64_t word = htole64(pattern_word(seed, i));
		size_t part = n < 8 ? n : 8;

		if (memcmp(in, &word, part))
			return 0;
		in += part;
		n -= part;
	}
	return 1;
}

#endif
