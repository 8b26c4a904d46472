/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe-client's data. client.c has the options, client_run.c the main loop, client_conn.c
 * TCP, client_udp.c UDP, client_report.c the report.
 *
 * A stock client: nothing here knows that ferry exists.
 *
 * Invariant: a connection that is DONE or BROKEN has no descriptor and changes no more; each is
 * in the report.
 */
#ifndef PROBE_CLIENT_H
#define PROBE_CLIENT_H

#include <stdio.h>

#include "hello.h"
#include "histogram.h"
#include "net.h"
#include "stream.h"

#define GAPS_MAX 100000u
#define MISSING_LISTED 10000u

enum state {
	CONNECTING,
	WAITING, /* for COMPLETE */
	STREAMING,
	ENDING, /* our END is made; the server's is awaited */
	CLOSING, /* both are here, we have shut down; the server's FIN is awaited */
	DONE,
	BROKEN,
};

enum broken {
	BROKEN_RST,
	BROKEN_FIN,
	BROKEN_PROTOCOL,
	BROKEN_TIMEOUT,
	BROKEN_KINDS,
};

struct client;
struct cunit;

struct conn {
	struct source source;
	struct client *client;
	struct cunit *unit;
	uint32_t index;
	enum state state;
	enum broken how;
	int again;	/* made after another broke */
	int end_got;
	int replaced;	/* its one reconnect was tried */
	int error; /* errno: what a send said (the kernel tells a reset once), or EPROTO */
	struct stream_tx tx;
	struct stream_rx rx;
	struct end_report report;
	uint64_t due;
	uint64_t last_rx; /* when something last came, or a pause of ours ended */
	uint64_t last_octets; /* when something last came: what the timeout counts from */
	uint64_t silence; /* the longest, ns */
	uint64_t last_echo; /* so that each of our messages is one sample of round trip time */
	uint32_t retransmits;
	char local[ADDRESS_TEXT], remote[ADDRESS_TEXT];
};

struct udp {
	struct source source;
	struct cunit *unit;
	struct stream_tx tx;
	struct stream_rx rx;
	uint64_t *t_send; /* by seq; the top bit says that it was answered */
	uint64_t n, cap, answered;
	uint64_t due, send_errors, blocked;
	int32_t error; /* the server could not make its socket */
};

struct cunit {
	struct client *client;
	uint64_t id;
	uint32_t n, udp_kind;
	struct conn **conns;
	struct udp udp;
};

struct gap {
	uint32_t conn;
	uint64_t from, to;
};

struct client {
	/* options */
	union address server, bind_address;
	int bind;
	uint16_t udp_port;
	uint64_t units, tcp, rate, udp_rate, max_len, seconds, timeout_ms, gap_min_us;
	enum unit_udp udp;
	struct pause pause;
	int idle;
	const char *report;
	/* run time */
	int loop;
	struct source signals, input;
	int paused;
	int ready;	   /* all units were complete */
	int stopping, ending; /* no more datagrams; no more messages */
	uint64_t started, stop_at, end_at, deadline, next_silence_check, next_tend;
	uint32_t last_conn; /* ids given so far */
	uint64_t last_unit;
	struct cunit **all;
	uint64_t n_all;
	struct histogram rtt, udp_rtt;
	struct gap *gaps;
	uint64_t n_gaps, gaps_dropped;
	uint64_t reconnects, reconnect_failed;
};

/* client_run.c: until all is over. The exit status. */
int client_run(struct client *c);

/* client_conn.c */
/* 0, or -errno; that nobody answers is no error but breaks the connection. */
int conn_open(struct client *c, struct cunit *u, uint32_t index, int again);
static inline int conn_is_over(const struct conn *c)
{
	return c->state == DONE || c->state == BROKEN;
}
void conn_go(struct conn *c, uint64_t now);
/* When it has something to send by the clock. */
uint64_t conn_due(const struct conn *c);
void conn_break(struct conn *c, enum broken how);
/* The silence until now ends, by octets or by a pause of ours that begins. With deaf it was ours: a
 * pause that ends, of which nothing is recorded. */
void conn_heard(struct conn *c, uint64_t now, int deaf);
void conn_sample_info(struct conn *c);

/* client_udp.c: a connected socket whether the server's is or not */
int udp_open(struct cunit *u);
void udp_go(struct udp *u, uint64_t now);
uint64_t udp_due(const struct udp *u);
static inline int udp_is_answered(const struct udp *u, uint64_t seq)
{
	return u->t_send[seq] >> 63;
}

/* client_report.c: on stdout; the final one in the file of --report, too. True: nothing at all went
 * wrong. Without its lists (gaps, missing) a report is short, however long the client has run. */
enum report_kind {
	REPORT_SHORT,
	REPORT_WITH_LISTS,
	REPORT_FINAL,
};
int report(struct client *c, enum report_kind kind);

#endif
