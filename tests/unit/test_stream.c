// SPDX-License-Identifier: BSD-2-Clause
/*
 * The message stream finds every kind of fault, and only that kind; and it goes on in another
 * object after save and load between any two octets. No sockets, no time.
 *
 * Each row of the table damages the octets of a good stream of messages in one way and says what
 * must be counted; it is fed whole, an octet at a time, and in pieces of several odd sizes.
 *
 * Invariant: all counts that a row does not name must be 0.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "stream.h"

#define MESSAGES 12
#define MAX_LEN 400
#define CONN 7

struct wire {
	uint8_t data[MESSAGES * MAX_LEN * 2];
	size_t len;
	size_t at[MESSAGES + 1]; /* where each message begins in the undamaged stream */
};

static const struct stream_echo no_echo;

static void make_stream(struct wire *w, uint32_t conn, uint32_t flags)
{
	struct stream_tx tx;

	memset(w, 0, sizeof(*w));
	stream_tx_init(&tx, conn, flags, MAX_LEN);
	for (unsigned int i = 0; i < MESSAGES; i++) {
		if (i == 5)
			assert_int_equal(
				stream_tx_control(&tx, STREAM_HELLO, "hello", 5, i, no_echo), 0);
		else
			assert_int_equal(stream_tx_data(&tx, i, no_echo), 0);
		assert_int_equal(stream_tx_data(&tx, i, no_echo), -EBUSY);
		w->at[i] = w->len;
		memcpy(w->data + w->len, stream_tx_at(&tx), stream_tx_left(&tx));
		w->len += stream_tx_left(&tx);
		stream_tx_advance(&tx, stream_tx_left(&tx));
	}
	w->at[MESSAGES] = w->len;
	stream_tx_free(&tx);
}

static void cut(struct wire *w, size_t from, size_t n)
{
	memmove(w->data + from, w->data + from + n, w->len - from - n);
	w->len -= n;
}

static void insert(struct wire *w, size_t at, const uint8_t *what, size_t n)
{
	uint8_t copy[MAX_LEN * 2];

	memcpy(copy, what, n);
	memmove(w->data + at + n, w->data + at, w->len - at);
	memcpy(w->data + at, copy, n);
	w->len += n;
}

static size_t length(const struct wire *w, int m)
{
	return w->at[m + 1] - w->at[m];
}

/* The faults: m is a message, x a free number. */
static void fault_none(struct wire *w, int m, size_t x)
{
	(void)w, (void)m, (void)x;
}

static void fault_drop_octets(struct wire *w, int m, size_t x)
{
	cut(w, w->at[m] + x, 1);
}

static void fault_drop_messages(struct wire *w, int m, size_t x)
{
	cut(w, w->at[m], w->at[m + x] - w->at[m]);
}

static void fault_drop_across(struct wire *w, int m, size_t x)
{
	cut(w, w->at[m] + x, length(w, m));
}

static void fault_double(struct wire *w, int m, size_t x)
{
	insert(w, w->at[m + x], w->data + w->at[m], length(w, m));
}

static void fault_swap(struct wire *w, int m, size_t x)
{
	uint8_t copy[MAX_LEN];
	size_t n = length(w, m);

	memcpy(copy, w->data + w->at[m], n);
	cut(w, w->at[m], n);
	insert(w, w->at[m + 1 + x] - n, copy, n);
}

static void fault_flip(struct wire *w, int m, size_t x)
{
	w->data[w->at[m] + x / 8] ^= (uint8_t)(1u << x % 8);
}

static void fault_insert_octets(struct wire *w, int m, size_t x)
{
	static const uint8_t noise[STREAM_MIN] = { 0x1b, 0xa1, 0x00 };

	insert(w, w->at[m] + x, noise, 3);
}

static void fault_foreign(struct wire *w, int m, size_t x)
{
	struct wire other;

	make_stream(&other, CONN + (uint32_t)x, x ? 0 : STREAM_FROM_SERVER);
	insert(w, w->at[m], other.data + other.at[1], length(&other, 1));
}

#define FLIP_ALL SIZE_MAX
static const struct row {
	const char *name;
	void (*fault)(struct wire *w, int m, size_t x);
	size_t first, last; /* x runs from first to last; FLIP_ALL: to the end of the message */
	struct stream_counts want;
} rows[] = {
	{ "nothing", fault_none, 0, 0, { .messages = MESSAGES } },
	{ "drop an octet", fault_drop_octets, 0, FLIP_ALL,
	  { .messages = MESSAGES - 1, .crc_errors = 1 } },
	{ "drop a message", fault_drop_messages, 1, 1, { .messages = MESSAGES - 1, .lost = 1 } },
	{ "drop three messages", fault_drop_messages, 3, 3,
	  { .messages = MESSAGES - 3, .lost = 3 } },
	/* Below 8 the octets left of both are the same: one message is gone, none is damaged. */
	{ "drop across two messages", fault_drop_across, 8, 60,
	  { .messages = MESSAGES - 2, .lost = 1, .crc_errors = 1 } },
	{ "double a message", fault_double, 1, 3,
	  { .messages = MESSAGES + 1, .duplicated = 1 } },
	{ "swap two messages", fault_swap, 1, 1, { .messages = MESSAGES, .reordered = 1 } },
	{ "a message three later", fault_swap, 3, 3, { .messages = MESSAGES, .reordered = 1 } },
	{ "flip a bit", fault_flip, 0, FLIP_ALL, { .messages = MESSAGES - 1, .crc_errors = 1 } },
	{ "noise between messages", fault_insert_octets, 0, 0,
	  { .messages = MESSAGES, .crc_errors = 1 } },
	{ "noise in a message", fault_insert_octets, 1, 63,
	  { .messages = MESSAGES - 1, .crc_errors = 1 } },
	{ "another direction", fault_foreign, 0, 0, { .messages = MESSAGES, .foreign = 1 } },
	{ "another connection", fault_foreign, 1, 1, { .messages = MESSAGES, .foreign = 1 } },
};

static int same(const struct stream_counts *a, const struct stream_counts *b)
{
	return a->messages == b->messages && a->lost == b->lost &&
	       a->duplicated == b->duplicated && a->reordered == b->reordered &&
	       a->crc_errors == b->crc_errors && a->foreign == b->foreign;
}

static void feed_in_pieces(struct stream_rx *rx, const struct wire *w, size_t piece)
{
	for (size_t at = 0; at < w->len; at += piece)
		stream_rx_feed(rx, w->data + at, w->len - at < piece ? w->len - at : piece);
}

static void check(const struct row *row, int m, size_t x)
{
	static const size_t pieces[] = { 1, 3, 55, 56, 57, 1000, SIZE_MAX };
	struct wire w;

	make_stream(&w, CONN, 0);
	row->fault(&w, m, x);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		size_t piece = pieces[i] < w.len ? pieces[i] : w.len;
		struct stream_rx rx;

		stream_rx_init(&rx, CONN, 0, NULL, NULL);
		feed_in_pieces(&rx, &w, piece);
		if (!same(&rx.counts, &row->want) || rx.error || stream_rx_partial(&rx))
			fail_msg("%s (m %d, x %zu, pieces of %zu): messages %ju lost %ju "
				 "duplicated %ju reordered %ju crc_errors %ju foreign %ju left %zu",
				 row->name, m, x, piece, (uintmax_t)rx.counts.messages,
				 (uintmax_t)rx.counts.lost, (uintmax_t)rx.counts.duplicated,
				 (uintmax_t)rx.counts.reordered, (uintmax_t)rx.counts.crc_errors,
				 (uintmax_t)rx.counts.foreign, stream_rx_partial(&rx));
		stream_rx_free(&rx);
	}
}

static void test_faults(void **state)
{
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int by_bit = rows[i].fault == fault_flip;

		print_message("  %s\n", rows[i].name);
		for (int m = 2; m <= 5; m++) {
			size_t end = length(&w, m) * (by_bit ? 8 : 1) - 1;
			size_t last = rows[i].last == FLIP_ALL ? end : rows[i].last;

			/* Message 5 is the short control message. */
			if (last > end)
				last = end;
			for (size_t x = rows[i].first; x <= last; x++)
				check(&rows[i], m, x);
		}
	}
}

/* Two faults far enough apart are two faults; what follows is intact. */
static void test_counts_stay_right(void **state)
{
	const struct stream_counts want = {
		.messages = MESSAGES - 3, .crc_errors = 2, .lost = 1,
	};
	struct stream_rx rx;
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	fault_drop_messages(&w, 8, 1);
	fault_flip(&w, 4, 100 * 8);
	fault_flip(&w, 1, 0);
	stream_rx_init(&rx, CONN, 0, NULL, NULL);
	stream_rx_feed(&rx, w.data, w.len);
	assert_true(same(&rx.counts, &want));
	stream_rx_free(&rx);
}

static void test_cut_end_is_partial(void **state)
{
	struct stream_rx rx;
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	stream_rx_init(&rx, CONN, 0, NULL, NULL);
	stream_rx_feed(&rx, w.data, w.len - 1);
	assert_int_equal(rx.counts.messages, MESSAGES - 1);
	assert_int_equal(stream_rx_partial(&rx), length(&w, MESSAGES - 1) - 1);
	stream_rx_free(&rx);
}

static const struct datagram_row {
	const char *name;
	int order[8]; /* messages as they arrive, ended by -1; +100: damaged */
	struct stream_counts want;
} datagram_rows[] = {
	{ "in order", { 0, 1, 2, 3, -1 }, { .messages = 4 } },
	{ "lost", { 0, 3, -1 }, { .messages = 2, .lost = 2 } },
	{ "doubled", { 0, 1, 1, -1 }, { .messages = 3, .duplicated = 1 } },
	{ "late, from a gap's middle", { 0, 4, 2, -1 },
	  { .messages = 3, .lost = 2, .reordered = 1 } },
	{ "late, all", { 0, 4, 2, 1, 3, -1 }, { .messages = 5, .reordered = 3 } },
	{ "late, twice", { 0, 2, 1, 1, -1 },
	  { .messages = 4, .reordered = 1, .duplicated = 1 } },
	{ "damaged", { 0, 101, 2, -1 }, { .messages = 2, .crc_errors = 1 } },
};

static void test_datagrams(void **state)
{
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	for (size_t i = 0; i < sizeof(datagram_rows) / sizeof(*datagram_rows); i++) {
		const struct datagram_row *row = &datagram_rows[i];

		/* Each octet damaged in turn; without damage the rounds are the same. */
		for (size_t octet = 0; octet < STREAM_MIN; octet++) {
			struct stream_rx rx;

			stream_rx_init(&rx, 0, 0, NULL, NULL);
			for (const int *m = row->order; *m >= 0; m++) {
				uint8_t copy[MAX_LEN];
				size_t n = length(&w, *m % 100);

				memcpy(copy, w.data + w.at[*m % 100], n);
				copy[octet] ^= *m >= 100;
				stream_rx_datagram(&rx, copy, n);
			}
			if (!same(&rx.counts, &row->want))
				fail_msg("%s (octet %zu)", row->name, octet);
			stream_rx_free(&rx);
		}
	}
}

static void test_datagram_of_wrong_length(void **state)
{
	struct stream_rx rx;
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	stream_rx_init(&rx, CONN, 0, NULL, NULL);
	for (size_t n = 0; n < length(&w, 0); n++)
		stream_rx_datagram(&rx, w.data, n);
	stream_rx_datagram(&rx, w.data, length(&w, 0) + 1);
	assert_int_equal(rx.counts.crc_errors, length(&w, 0) + 1);
	assert_int_equal(rx.counts.messages, 0);
	stream_rx_free(&rx);
}

static void test_missing_list_is_bounded(void **state)
{
	const uint64_t n = STREAM_MISSING_MAX + 100;
	struct stream_tx tx;
	struct stream_rx rx;

	(void)state;
	stream_tx_init(&tx, CONN, 0, STREAM_MIN);
	stream_rx_init(&rx, CONN, 0, NULL, NULL);
	for (uint64_t seq = 0; seq < 2 * n; seq++) {
		stream_tx_data(&tx, seq, no_echo);
		if (seq % 2)
			stream_rx_datagram(&rx, stream_tx_at(&tx), stream_tx_left(&tx));
		stream_tx_advance(&tx, stream_tx_left(&tx));
	}
	assert_int_equal(rx.counts.lost, n);
	assert_int_equal(rx.n_missing, STREAM_MISSING_MAX);
	assert_int_equal(rx.missing[0].first, 2 * 100);
	stream_tx_free(&tx);
	stream_rx_free(&rx);
}

static void got_message(const struct stream_header *h, const uint8_t *payload, void *arg)
{
	(void)payload;
	assert_true(h->flags & STREAM_FROM_SERVER);
	++*(unsigned int *)arg;
}

/* After every octet both sides are saved and go on in fresh objects. */
static void test_save_at_every_octet(void **state)
{
	unsigned int got = 0;
	struct stream_tx tx;
	struct stream_rx rx;
	size_t octets = 0;

	(void)state;
	stream_tx_init(&tx, CONN, STREAM_FROM_SERVER, MAX_LEN);
	stream_rx_init(&rx, CONN, STREAM_FROM_SERVER, got_message, &got);
	for (unsigned int i = 0; i < 6; i++) {
		assert_int_equal(stream_tx_data(&tx, i + 1, rx.newest), 0);
		if (i == 2)
			stream_tx_advance(&tx, stream_tx_left(&tx)); /* one is lost */
		for (; stream_tx_left(&tx); octets++) {
			struct blob b = { 0 };
			struct blob_reader r;

			stream_rx_feed(&rx, stream_tx_at(&tx), 1);
			stream_tx_advance(&tx, 1);
			stream_tx_save(&tx, &b);
			stream_rx_save(&rx, &b);
			assert_false(b.bad);
			stream_tx_free(&tx);
			stream_rx_free(&rx);
			stream_tx_init(&tx, 0, 0, 0);
			stream_rx_init(&rx, 0, 0, got_message, &got);
			r = (struct blob_reader){ b.data, b.len, 0 };
			assert_int_equal(stream_tx_load(&tx, &r), 0);
			assert_int_equal(stream_rx_load(&rx, &r), 0);
			assert_int_equal(r.left, 0);
			blob_free(&b);
		}
	}
	assert_int_equal(got, 5);
	assert_int_equal(rx.counts.messages, 5);
	assert_int_equal(rx.counts.lost, 1);
	assert_int_equal(rx.counts.crc_errors, 0);
	assert_int_equal(rx.newest.t, 6);
	assert_int_equal(tx.bytes, octets + stream_tx_length(&tx, 2));
	stream_tx_free(&tx);
	stream_rx_free(&rx);
}

/* A state that was cut short is refused at every length, and leaves objects that can be freed. */
static void test_cut_state_is_refused(void **state)
{
	struct blob b = { 0 };
	struct stream_tx tx;
	struct stream_rx rx;
	struct wire w;

	(void)state;
	make_stream(&w, CONN, 0);
	fault_drop_messages(&w, 3, 1);
	stream_tx_init(&tx, CONN, 0, MAX_LEN);
	stream_tx_data(&tx, 0, no_echo);
	stream_rx_init(&rx, CONN, 0, NULL, NULL);
	stream_rx_feed(&rx, w.data, w.len - 1);
	stream_tx_save(&tx, &b);
	stream_rx_save(&rx, &b);
	for (size_t n = 0; n < b.len; n++) {
		struct blob_reader r = { b.data, n, 0 };
		int tx_bad = stream_tx_load(&tx, &r);
		int rx_bad = stream_rx_load(&rx, &r);

		assert_true(tx_bad || rx_bad);
	}
	stream_tx_free(&tx);
	stream_rx_free(&rx);
	blob_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_counts_stay_right),
		cmocka_unit_test(test_cut_end_is_partial),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_datagram_of_wrong_length),
		cmocka_unit_test(test_missing_list_is_bounded),
		cmocka_unit_test(test_save_at_every_octet),
		cmocka_unit_test(test_cut_state_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
