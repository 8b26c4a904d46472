/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why another agent, or who says to be one, is not let in or loses its connection: stable ids, each
 * with a sentence. docs/WIRE.md lists them. None of them is about a single move: that is
 * ctl/move/refusal.h.
 */
#ifndef PEER_REASON_H
#define PEER_REASON_H

#define PEER_REASON_LIST(X)                                                                        \
	X(ADDRESS, "unknown-address", "it is at an address of no node")                            \
	X(BUSY, "too-many", "there are too many connections from there")                           \
	X(TIMEOUT, "handshake-timeout", "it did not finish its handshake in time")                 \
	X(CUT, "cut", "the connection ended in the handshake or in a frame")                       \
	X(NOT_TLS, "not-tls", "what it speaks is not TLS")                                         \
	X(TLS_VERSION, "tls-version", "it does not speak TLS 1.3")                                 \
	X(NO_CERTIFICATE, "no-certificate", "it showed no certificate")                            \
	X(UNKNOWN_CA, "unknown-ca", "its certificate is not from the authority in ca.crt")         \
	X(EXPIRED, "expired", "its certificate has ended")                                         \
	X(NOT_YET, "not-yet-valid", "its certificate is not valid yet")                            \
	X(CERTIFICATE, "bad-certificate", "its certificate is none of a node")                     \
	X(UNKNOWN_NAME, "unknown-name", "its certificate names no node of the configuration")      \
	X(WRONG_NAME, "wrong-name", "its certificate is another node's")                           \
	X(TLS, "tls-broken", "a TLS record was changed on the way, or never was one")              \
	X(THERE, "refused-there", "the other side refused this node")                              \
	X(VERSION, "version", "no version of the protocol is common")                              \
	X(NUMBER, "wrong-number", "its HELLO has another number than the configuration")           \
	X(ORDER, "out-of-order", "HELLO comes first, and once")                                    \
	X(FRAME, "bad-frame", "a frame does not begin as one")                                     \
	X(SIZE, "too-big", "a body or trailer is over its limit")                                  \
	X(TRAILER, "trailer", "a trailer came with a message that has none")                       \
	X(TYPE, "unknown-type", "a message has a type that is not known, and not optional")        \
	X(MESSAGE, "bad-message", "a message does not decode")                                     \
	X(MEMORY, "no-memory", "no memory for what it sends")

enum peer_reason {
	PEER_NONE, /* not refused */
#define X(name, id, text) PEER_##name,
	PEER_REASON_LIST(X)
#undef X
	PEER_REASONS
};

/* "" for PEER_NONE. */
const char *peer_reason_id(enum peer_reason r);
const char *peer_reason_text(enum peer_reason r);

#endif
