/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A growing buffer to write state into and a cursor to read it back: what the probes give to
 * ferry_ready() and take from ferry_unit_state(). Fields have no names and no lengths of their
 * own: who reads must read in the order of who wrote.
 *
 * Invariant: after an error (memory, or reading past the end) nothing is written, and reads give
 * zeroes; so a caller checks `bad` once, at the end.
 */
#ifndef PROBE_BLOB_H
#define PROBE_BLOB_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct blob {
	uint8_t *data;
	size_t len, cap;
	int bad;
};

struct blob_reader {
	const uint8_t *data;
	size_t left;
	int bad;
};

static inline void blob_put(struct blob *b, const void *data, size_t n)
{
	if (b->bad || !n)
		return;
	if (b->cap - b->len < n) {
		size_t cap = (b->len + n) * 2;
		uint8_t *grown = realloc(b->data, cap);

		if (!grown) {
			b->bad = 1;
			return;
		}
		b->data = grown;
		b->cap = cap;
	}
	memcpy(b->data + b->len, data, n);
	b->len += n;
}

static inline void blob_put_u32(struct blob *b, uint32_t v)
{
	blob_put(b, &v, sizeof(v));
}

static inline void blob_put_u64(struct blob *b, uint64_t v)
{
	blob_put(b, &v, sizeof(v));
}

/* The next n octets, which stay the blob's; NULL when there are not so many. */
static inline const void *blob_view(struct blob_reader *r, size_t n)
{
	const uint8_t *at = r->data;

	if (r->bad || r->left < n) {
		r->bad = 1;
		return NULL;
	}
	r->data += n;
	r->left -= n;
	return at;
}

static inline void blob_get(struct blob_reader *r, void *out, size_t n)
{
	const void *at = blob_view(r, n);

	if (!at)
		memset(out, 0, n);
	else if (n)
		memcpy(out, at, n);
}

static inline uint32_t blob_get_u32(struct blob_reader *r)
{
	uint32_t v;

	blob_get(r, &v, sizeof(v));
	return v;
}

static inline uint64_t blob_get_u64(struct blob_reader *r)
{
	uint64_t v;

	blob_get(r, &v, sizeof(v));
	return v;
}

static inline void blob_free(struct blob *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

#endif
