/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe-server's data: a unit (struct sunit) of TCP connections and perhaps a UDP socket, each
 * with its message streams. server.c has the options and assembles units, server_conn.c does TCP,
 * server_udp.c UDP, server_state.c the state that moves, server_extra.c sockets to be refused.
 *
 * Invariant: a connection without a unit has not said HELLO yet; a unit is offered only while
 * all its connections are open (struct sunit.whole).
 */
#ifndef PROBE_SERVER_H
#define PROBE_SERVER_H

#include "app.h"
#include "hello.h"
#include "stream.h"

enum extra {
	EXTRA_NONE,
	EXTRA_LISTEN,
	EXTRA_MPTCP,
	EXTRA_NOT_CONNECTED,
};

struct server {
	struct app app;
	uint64_t rate; /* messages/s and connection; 0: as fast as possible */
	uint64_t max_len;
	uint16_t udp_port;
	int idle; /* only answers */
	enum extra extra;
	struct pause pause;
	int paused;
	uint64_t next_due; /* of all connections, with --rate: not later than any's due */
};

struct conn {
	struct source source;
	struct server *server;
	struct sunit *unit;
	struct stream_tx tx;
	struct stream_rx rx;
	struct hello hello;
	uint32_t hello_due, complete_due, streaming, end_got, end_sent, broken;
	uint64_t owed; /* answers, with --idle */
	uint64_t due;  /* when the next message is sent, with --rate */
	int send_error; /* the kernel tells a reset once, to whoever asks first */
};

/* A datagram that the socket would not take yet. */
struct answer {
	struct answer *next;
	union address to;
	size_t len;
	uint8_t data[];
};

struct udp {
	struct source source;
	struct sunit *unit;
	struct stream_tx tx;
	struct stream_rx rx;
	union address from; /* of the datagram at hand */
	struct answer *first, **last;
	uint64_t send_errors;
};

struct sunit {
	struct unit unit;
	struct server *server;
	uint32_t n, arrived;
	uint32_t udp_kind;
	int32_t udp_error;
	int whole;  /* all connections are open */
	int failed; /* one has closed */
	struct conn *conns[UNIT_TCP_MAX];
	struct udp udp;
	int extra_fd;
};

/* server.c */
void server_join(struct conn *c);
void server_leave(struct conn *c, const char *how);
struct sunit *sunit_new(struct server *s, uint64_t id, uint32_t n, uint32_t udp_kind);
void server_offer(struct app *a, struct unit *u);

/* server_conn.c */
struct conn *conn_new(struct server *s, int fd);
void conn_free(struct conn *c);
/* Sends what may be sent now, and watches for what is to come. */
void conn_go(struct conn *c, uint64_t now);
/* When it has something to send by the clock; NEVER, when it waits for other things. */
uint64_t conn_due(const struct conn *c);
void conn_stop(struct conn *c);

/* server_udp.c */
void udp_init(struct udp *u, struct sunit *unit);
/* Binds as the unit asks for; 0 or -errno. */
int udp_make(struct udp *u, const struct hello *hello, int tcp_fd, uint16_t port);
void udp_datagram(struct udp *u, const uint8_t *data, size_t n);
void udp_go(struct udp *u);
void udp_free(struct udp *u);

/* server_state.c */
void server_save(struct app *a, const struct unit *u, struct blob *b);
struct unit *server_load(struct app *a, struct ferry_unit *fu, struct blob_reader *r);

/* server_extra.c: a descriptor, near the connected socket fd, or -errno. */
int extra_make(enum extra kind, int fd);

#endif
