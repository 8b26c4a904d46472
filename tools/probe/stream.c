// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes and checks the message stream; stream.h is the contract. Saving it is in stream_save.c.
 *
 * The checker collects octets up to the next point of decision: a whole header, then the whole
 * message that the header announces. A header has its own checksum, so that a length is believed
 * only when it is right, and a damaged payload still says which message it was.
 *
 *       |<-------------- len ----------------->|
 *   ... | header, crc | payload, crc and known | header ...
 *                     ^ need = STREAM_HEADER   ^ need = len
 *
 * Invariant: what is dropped from the buffer was either an intact message or is in crc_errors.
 */
#include "stream.h"

#include <errno.h>
#include <zlib.h>

#include "pattern.h"

static uint64_t message_key(uint32_t conn, uint32_t direction, uint64_t seq)
{
	return pattern_word((uint64_t)conn << 32 | direction, seq);
}

static uint32_t checksum(const void *data, size_t n)
{
	return (uint32_t)crc32(0, data, (uInt)n);
}

static uint32_t header_checksum(const struct stream_header *h)
{
	return checksum(h, offsetof(struct stream_header, header_crc));
}

static int reserve(uint8_t **buf, size_t *cap, size_t n)
{
	uint8_t *grown;

	if (n <= *cap)
		return 0;
	grown = realloc(*buf, n);
	if (!grown)
		return -ENOMEM;
	*buf = grown;
	*cap = n;
	return 0;
}

void stream_tx_init(struct stream_tx *tx, uint32_t conn, uint32_t flags, uint32_t max_len)
{
	*tx = (struct stream_tx){ .conn = conn, .flags = flags, .max_len = max_len };
}

void stream_tx_free(struct stream_tx *tx)
{
	free(tx->buf);
	tx->buf = NULL;
	tx->off = tx->len = tx->cap = 0;
}

uint32_t stream_tx_length(const struct stream_tx *tx, uint64_t seq)
{
	/* A word of another key than the payload's. */
	uint64_t word = pattern_word(~message_key(tx->conn, tx->flags, seq), 0);

	return STREAM_MIN + (uint32_t)(word % (tx->max_len - STREAM_MIN + 1));
}

/* Completes the header of the message whose payload is in the buffer. */
static void seal(struct stream_tx *tx, uint32_t len, uint32_t flags, uint64_t now,
		 struct stream_echo echo)
{
	struct stream_header h = {
		.magic = STREAM_MAGIC,
		.len = len,
		.conn = tx->conn,
		.flags = tx->flags | flags,
		.seq = tx->seq++,
		.t_send = now,
		.echo_seq = echo.seq,
		.echo_t = echo.t,
		.payload_crc = checksum(tx->buf + STREAM_HEADER, len - STREAM_HEADER),
	};

	h.header_crc = header_checksum(&h);
	memcpy(tx->buf, &h, sizeof(h));
	tx->off = 0;
	tx->len = len;
	tx->messages++;
	tx->bytes += len;
}

int stream_tx_data(struct stream_tx *tx, uint64_t now, struct stream_echo echo)
{
	uint32_t len = stream_tx_length(tx, tx->seq);

	if (stream_tx_left(tx))
		return -EBUSY;
	if (reserve(&tx->buf, &tx->cap, len))
		return -ENOMEM;
	pattern_fill(tx->buf + STREAM_HEADER, len - STREAM_HEADER,
		     message_key(tx->conn, tx->flags, tx->seq), 0);
	seal(tx, len, 0, now, echo);
	return 0;
}

int stream_tx_control(struct stream_tx *tx, uint32_t flag, const void *payload, size_t size,
		      uint64_t now, struct stream_echo echo)
{
	if (stream_tx_left(tx))
		return -EBUSY;
	if (size > STREAM_MAX - STREAM_HEADER)
		return -EMSGSIZE;
	if (reserve(&tx->buf, &tx->cap, STREAM_HEADER + size))
		return -ENOMEM;
	if (size)
		memcpy(tx->buf + STREAM_HEADER, payload, size);
	seal(tx, (uint32_t)(STREAM_HEADER + size), flag, now, echo);
	return 0;
}

void stream_rx_init(struct stream_rx *rx, uint32_t conn, uint32_t flags, stream_got_fn got,
		    void *arg)
{
	*rx = (struct stream_rx){
		.conn = conn, .flags = flags, .got = got, .arg = arg, .need = STREAM_HEADER,
	};
}

void stream_rx_free(struct stream_rx *rx)
{
	free(rx->buf);
	free(rx->missing);
	rx->buf = NULL;
	rx->missing = NULL;
	rx->cap = rx->have = 0;
	rx->n_missing = rx->cap_missing = 0;
}

/* Makes room for one range at index i. */
static int missing_insert(struct stream_rx *rx, uint32_t i, struct stream_range range)
{
	if (rx->n_missing == STREAM_MISSING_MAX) {
		memmove(rx->missing, rx->missing + 1, --rx->n_missing * sizeof(range));
		i = i ? i - 1 : 0;
	}
	if (rx->n_missing == rx->cap_missing) {
		uint32_t cap = rx->cap_missing ? rx->cap_missing * 2 : 8;
		struct stream_range *grown = realloc(rx->missing, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		rx->missing = grown;
		rx->cap_missing = cap;
	}
	memmove(rx->missing + i + 1, rx->missing + i, (rx->n_missing - i) * sizeof(range));
	rx->missing[i] = range;
	rx->n_missing++;
	return 0;
}

/* Takes seq out of what is missing: was it there? */
static int missing_take(struct stream_rx *rx, uint64_t seq)
{
	for (uint32_t i = rx->n_missing; i--;) {
		struct stream_range *r = &rx->missing[i];
		struct stream_range above = { seq + 1, r->first + r->count - seq - 1 };

		if (seq < r->first)
			continue;
		if (seq - r->first >= r->count)
			return 0;
		r->count = seq - r->first;
		if (r->count && above.count) {
			rx->error = missing_insert(rx, i + 1, above);
		} else if (above.count) {
			*r = above;
		} else if (!r->count) {
			rx->n_missing--;
			memmove(r, r + 1, (rx->n_missing - i) * sizeof(*r));
		}
		return 1;
	}
	return 0;
}

/* Where in the order is message seq? True when it was not here before. */
static int place(struct stream_rx *rx, uint64_t seq)
{
	if (seq >= rx->next) {
		uint64_t gap = seq - rx->next;

		if (gap && rx->damaged) {
			rx->next++;
			gap--;
		}
		rx->damaged = 0;
		if (gap) {
			struct stream_range range = { rx->next, gap };

			rx->counts.lost += gap;
			if (missing_insert(rx, rx->n_missing, range))
				rx->error = -ENOMEM;
		}
		rx->next = seq + 1;
		return 1;
	}
	if (missing_take(rx, seq)) {
		rx->counts.lost--;
		rx->counts.reordered++;
		return 1;
	}
	rx->counts.duplicated++;
	return 0;
}

static int header_intact(const uint8_t *at, struct stream_header *h)
{
	memcpy(h, at, sizeof(*h));
	return h->magic == STREAM_MAGIC && h->len >= STREAM_HEADER && h->len <= STREAM_MAX &&
	       h->header_crc == header_checksum(h);
}

static int payload_intact(const struct stream_header *h, const uint8_t *payload)
{
	size_t n = h->len - STREAM_HEADER;

	if (h->payload_crc != checksum(payload, n))
		return 0;
	return (h->flags & STREAM_CONTROL) ||
	       pattern_matches(payload, n,
			       message_key(h->conn, h->flags & STREAM_FROM_SERVER, h->seq));
}

static int is_ours(struct stream_rx *rx, const struct stream_header *h)
{
	if (!rx->conn && (h->flags & STREAM_FROM_SERVER) == rx->flags)
		rx->conn = h->conn;
	return h->conn == rx->conn && (h->flags & STREAM_FROM_SERVER) == rx->flags;
}

static void accept_message(struct stream_rx *rx, const struct stream_header *h,
			   const uint8_t *payload)
{
	if (!is_ours(rx, h)) {
		rx->counts.foreign++;
		return;
	}
	rx->counts.messages++;
	rx->counts.bytes += h->len;
	if (!place(rx, h->seq))
		return;
	if (h->seq + 1 == rx->next)
		rx->newest = (struct stream_echo){ h->seq, h->t_send };
	if (rx->got)
		rx->got(h, payload, rx->arg);
}

static void drop_front(struct stream_rx *rx, size_t n)
{
	rx->have -= n;
	memmove(rx->buf, rx->buf + n, rx->have);
	rx->need = STREAM_HEADER;
}

/* Drops the first octet and all up to the next possible header, whole or cut by the buffer's end.
 * A flipped bit leaves none, and the next octet fed is a header's; a missing octet leaves one. */
static void resync(struct stream_rx *rx)
{
	const uint32_t magic = STREAM_MAGIC;
	size_t at = 1;

	if (!rx->unsynced) {
		rx->counts.crc_errors++;
		rx->unsynced = 1;
	}
	for (; at < rx->have; at++) {
		size_t n = rx->have - at < sizeof(magic) ? rx->have - at : sizeof(magic);

		if (!memcmp(rx->buf + at, &magic, n))
			break;
	}
	drop_front(rx, at);
}

/* The buffer holds a header, and the whole message if that was announced before. */
static void decide(struct stream_rx *rx, int whole)
{
	struct stream_header h;

	if (!header_intact(rx->buf, &h)) {
		if (!rx->unsynced)
			rx->damaged = 1;
		resync(rx);
		return;
	}
	rx->need = h.len;
	if (!whole && h.len > STREAM_HEADER)
		return;
	rx->unsynced = 0;
	if (payload_intact(&h, rx->buf + STREAM_HEADER)) {
		accept_message(rx, &h, rx->buf + STREAM_HEADER);
		drop_front(rx, h.len);
		return;
	}
	if (is_ours(rx, &h))
		place(rx, h.seq);
	resync(rx);
}

void stream_rx_feed(struct stream_rx *rx, const uint8_t *data, size_t n)
{
	while (n && !rx->error) {
		size_t part = rx->need - rx->have < n ? rx->need - rx->have : n;

		rx->error = reserve(&rx->buf, &rx->cap, rx->need);
		if (rx->error)
			return;
		memcpy(rx->buf + rx->have, data, part);
		rx->have += part;
		data += part;
		n -= part;
		while (rx->have >= rx->need)
			decide(rx, rx->need > STREAM_HEADER);
	}
}

void stream_rx_datagram(struct stream_rx *rx, const uint8_t *data, size_t n)
{
	struct stream_header h;

	if (n < STREAM_HEADER || !header_intact(data, &h) || h.len != n) {
		rx->counts.crc_errors++;
		rx->damaged = 1;
		return;
	}
	if (payload_intact(&h, data + STREAM_HEADER)) {
		accept_message(rx, &h, data + STREAM_HEADER);
		return;
	}
	rx->counts.crc_errors++;
	if (is_ours(rx, &h))
		place(rx, h.seq);
}
