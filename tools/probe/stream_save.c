// SPDX-License-Identifier: BSD-2-Clause
/*
 * The message stream's state in a blob, and out of it: a half-written message and a half-received
 * one go along as they are, since neither can be made again (times and echoes are in them).
 *
 * Does not check that the state is the right stream's; the servers put their own ids beside it.
 *
 * Invariant: load(save(x)) goes on octet for octet as x would have, and counts the same.
 */
#include "stream.h"

#include <errno.h>

void stream_tx_save(const struct stream_tx *tx, struct blob *b)
{
	blob_put_u32(b, tx->conn);
	blob_put_u32(b, tx->flags);
	blob_put_u32(b, tx->max_len);
	blob_put_u64(b, tx->seq);
	blob_put_u64(b, tx->messages);
	blob_put_u64(b, tx->bytes);
	blob_put_u32(b, (uint32_t)stream_tx_left(tx));
	if (stream_tx_left(tx))
		blob_put(b, stream_tx_at(tx), stream_tx_left(tx));
}

/* The next n octets in memory of their own; NULL when n is 0 or too large, or without memory. */
static uint8_t *take_copy(struct blob_reader *r, size_t n)
{
	const void *at = blob_view(r, n);
	uint8_t *copy;

	if (!at || !n)
		return NULL;
	copy = malloc(n);
	if (copy)
		memcpy(copy, at, n);
	else
		r->bad = 1;
	return copy;
}

int stream_tx_load(struct stream_tx *tx, struct blob_reader *r)
{
	stream_tx_free(tx);
	tx->conn = blob_get_u32(r);
	tx->flags = blob_get_u32(r);
	tx->max_len = blob_get_u32(r);
	tx->seq = blob_get_u64(r);
	tx->messages = blob_get_u64(r);
	tx->bytes = blob_get_u64(r);
	tx->len = blob_get_u32(r);
	if (tx->len > STREAM_MAX || tx->max_len < STREAM_MIN || tx->max_len > STREAM_MAX)
		r->bad = 1;
	tx->buf = take_copy(r, tx->len);
	if (r->bad)
		tx->len = 0;
	tx->cap = tx->len;
	return r->bad ? -EBADMSG : 0;
}

void stream_rx_save(const struct stream_rx *rx, struct blob *b)
{
	blob_put_u32(b, rx->conn);
	blob_put_u32(b, rx->flags);
	blob_put(b, &rx->counts, sizeof(rx->counts));
	blob_put(b, &rx->newest, sizeof(rx->newest));
	blob_put_u64(b, rx->next);
	blob_put_u32(b, rx->unsynced);
	blob_put_u32(b, rx->damaged);
	blob_put_u32(b, rx->n_missing);
	blob_put(b, rx->missing, rx->n_missing * sizeof(*rx->missing));
	blob_put_u32(b, (uint32_t)rx->need);
	blob_put_u32(b, (uint32_t)rx->have);
	blob_put(b, rx->buf, rx->have);
}

int stream_rx_load(struct stream_rx *rx, struct blob_reader *r)
{
	uint32_t n;

	stream_rx_free(rx);
	rx->conn = blob_get_u32(r);
	rx->flags = blob_get_u32(r);
	blob_get(r, &rx->counts, sizeof(rx->counts));
	blob_get(r, &rx->newest, sizeof(rx->newest));
	rx->next = blob_get_u64(r);
	rx->unsynced = blob_get_u32(r);
	rx->damaged = blob_get_u32(r);
	n = blob_get_u32(r);
	if (n > STREAM_MISSING_MAX)
		r->bad = 1;
	rx->missing = (struct stream_range *)take_copy(r, r->bad ? 0 : n * sizeof(*rx->missing));
	rx->need = blob_get_u32(r);
	rx->have = blob_get_u32(r);
	if (rx->need < STREAM_HEADER || rx->need > STREAM_MAX || rx->have >= rx->need)
		r->bad = 1;
	rx->buf = take_copy(r, rx->have);
	if (r->bad) {
		n = 0;
		rx->have = 0;
		rx->need = STREAM_HEADER;
	}
	rx->n_missing = rx->cap_missing = n;
	rx->cap = rx->have;
	return r->bad ? -EBADMSG : 0;
}
