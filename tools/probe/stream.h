/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The probes' message stream: made so that whoever receives it finds every octet that was lost,
 * doubled, moved or changed on the way. Pure: no sockets, no clock, no output.
 *
 * stream_tx makes one message at a time; all of it must be taken (stream_tx_advance) before the
 * next is made. stream_rx is fed what arrived, cut anywhere (or one datagram a call), and counts.
 * Both can be saved and loaded between any two octets, so that a stream goes on in another process.
 *
 * Invariant: one fault on the way is counted once, under its own kind, and the counts of what
 * comes after it are right again.
 */
#ifndef PROBE_STREAM_H
#define PROBE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "blob.h"

#define STREAM_MAGIC 0xfe55a11bU
#define STREAM_MIN 64u
#define STREAM_MAX 65536u
#define STREAM_MISSING_MAX 1024u

/* Flags of a message. Without any of the first three, its payload is pattern_fill()'s. */
#define STREAM_HELLO 0x1u
#define STREAM_COMPLETE 0x2u
#define STREAM_END 0x4u
#define STREAM_CONTROL (STREAM_HELLO | STREAM_COMPLETE | STREAM_END)
#define STREAM_FROM_SERVER 0x100u

/* In the byte order of the host: both ends are of one kind. Times are CLOCK_BOOTTIME ns. */
struct stream_header {
	uint32_t magic;
	uint32_t len; /* octets of the whole message, header included */
	uint32_t conn;
	uint32_t flags;
	uint64_t seq;	 /* 0, 1, 2, ... a stream (control messages included) */
	uint64_t t_send; /* when it was made */
	uint64_t echo_seq; /* the newest message the sender had received, and that one's t_send; */
	uint64_t echo_t;   /* echo_t 0: none yet */
	uint32_t payload_crc;
	uint32_t header_crc; /* of all above */
};
#define STREAM_HEADER sizeof(struct stream_header)
_Static_assert(STREAM_HEADER == 56, "no padding in the header");

struct stream_echo {
	uint64_t seq, t;
};

struct stream_tx {
	uint32_t conn, flags, max_len; /* flags: STREAM_FROM_SERVER or 0 */
	uint64_t seq;		       /* of the next message */
	uint64_t messages, bytes;      /* made so far */
	uint8_t *buf;		       /* the message that is being taken: [off, len) is left */
	size_t off, len, cap;
};

struct stream_counts {
	uint64_t messages, bytes; /* intact ones, duplicates included */
	uint64_t lost, duplicated, reordered;
	uint64_t crc_errors; /* stretches that were no intact message, whatever their length */
	uint64_t foreign;    /* intact, but of another connection or direction */
};

struct stream_range {
	uint64_t first, count;
};

/* Called for each intact message, but not for duplicates. payload: len - STREAM_HEADER octets. */
typedef void (*stream_got_fn)(const struct stream_header *h, const uint8_t *payload, void *arg);

struct stream_rx {
	uint32_t conn;	/* 0: that of the first message */
	uint32_t flags; /* which direction is received */
	stream_got_fn got;
	void *arg;
	struct stream_counts counts;
	struct stream_echo newest;
	uint64_t next;	  /* the seq that is expected */
	uint32_t unsynced; /* searching for the next header */
	uint32_t damaged; /* one damaged message stands in the next gap: it is not lost */
	/* What is lost so far, ascending. When full the oldest is forgotten: it stays lost, and
	 * should it come after all, it counts as duplicated. */
	struct stream_range *missing;
	uint32_t n_missing, cap_missing;
	uint8_t *buf; /* the beginning of a message */
	size_t have, need, cap;
	int error; /* -ENOMEM: the counts are void */
};

void stream_tx_init(struct stream_tx *tx, uint32_t conn, uint32_t flags, uint32_t max_len);
void stream_tx_free(struct stream_tx *tx);
/* Length of data message seq; a function of (conn, direction, seq, max_len). */
uint32_t stream_tx_length(const struct stream_tx *tx, uint64_t seq);
/* Make the next message; 0, -EBUSY (the last one is not taken yet), -EMSGSIZE or -ENOMEM. */
int stream_tx_data(struct stream_tx *tx, uint64_t now, struct stream_echo echo);
int stream_tx_control(struct stream_tx *tx, uint32_t flag, const void *payload, size_t size,
		      uint64_t now, struct stream_echo echo);
static inline size_t stream_tx_left(const struct stream_tx *tx)
{
	return tx->len - tx->off;
}
static inline const uint8_t *stream_tx_at(const struct stream_tx *tx)
{
	return tx->buf + tx->off;
}
static inline void stream_tx_advance(struct stream_tx *tx, size_t n)
{
	tx->off += n;
}

void stream_rx_init(struct stream_rx *rx, uint32_t conn, uint32_t flags, stream_got_fn got,
		    void *arg);
void stream_rx_free(struct stream_rx *rx);
void stream_rx_feed(struct stream_rx *rx, const uint8_t *data, size_t n);
/* One datagram, which must be one message. */
void stream_rx_datagram(struct stream_rx *rx, const uint8_t *data, size_t n);
/* Octets received that are no whole message yet: must be 0 when a stream has ended. */
static inline size_t stream_rx_partial(const struct stream_rx *rx)
{
	return rx->have;
}

/* State in a blob. Loading needs an object after its init (for got and arg); 0 or -EBADMSG. */
void stream_tx_save(const struct stream_tx *tx, struct blob *b);
int stream_tx_load(struct stream_tx *tx, struct blob_reader *r);
void stream_rx_save(const struct stream_rx *rx, struct blob *b);
int stream_rx_load(struct stream_rx *rx, struct blob_reader *r);

#endif
