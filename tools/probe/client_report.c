// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-client's report: one JSON object of what both sides saw. The server's half came in the
 * END message of each connection; a connection that broke has none, and is never "ok".
 *
 * Changes nothing; an interim report is made by the same walk as the final one.
 *
 * Invariant: ok is true only when each message that one side sent was counted once, intact and in
 * order by the other, and each datagram was answered once.
 */
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const broken_names[BROKEN_KINDS] = { "rst", "fin", "protocol", "timeout" };
static const char *const state_names[] = {
	"connecting", "waiting", "streaming", "ending", "closing", "end", "broken",
};

struct sums {
	uint64_t conns, units, sent, sent_bytes;
	struct stream_counts client, server, udp_client, udp_server;
	uint64_t server_reports, server_sent;
	uint64_t unfinished, unaccounted;
	uint64_t broken[BROKEN_KINDS];
	uint64_t retransmits, silence;
	uint64_t udp_sent, udp_answered, udp_errors, udp_refused, udp_server_sent;
};

static void add(struct stream_counts *sum, const struct stream_counts *n)
{
	sum->messages += n->messages;
	sum->bytes += n->bytes;
	sum->lost += n->lost;
	sum->duplicated += n->duplicated;
	sum->reordered += n->reordered;
	sum->crc_errors += n->crc_errors;
	sum->foreign += n->foreign;
}

/* A reconnect that met nobody: that is in reconnect_failed, and broke nothing. */
static int never_reached(const struct conn *c)
{
	return c->again && c->state == BROKEN && !c->local[0];
}

static const char *outcome(const struct conn *c)
{
	if (never_reached(c))
		return "unreached";
	return c->state == BROKEN ? broken_names[c->how] : state_names[c->state];
}

static void add_conn(struct sums *s, struct conn *c)
{
	conn_sample_info(c);
	s->conns++;
	s->sent += c->tx.messages;
	s->sent_bytes += c->tx.bytes;
	add(&s->client, &c->rx.counts);
	s->retransmits += c->retransmits;
	if (c->silence > s->silence)
		s->silence = c->silence;
	if (c->state == BROKEN && !never_reached(c))
		s->broken[c->how]++;
	if (c->state != DONE)
		s->unfinished++;
	if (!c->end_got)
		return;
	s->server_reports++;
	s->server_sent += c->report.sent;
	add(&s->server, &c->report.received);
	if (c->report.sent != c->rx.counts.messages ||
	    c->report.received.messages != c->tx.messages)
		s->unaccounted++;
	if (!c->index) {
		s->udp_server_sent += c->report.udp_sent;
		add(&s->udp_server, &c->report.udp_received);
	}
}

static void sum_up(struct client *c, struct sums *s)
{
	memset(s, 0, sizeof(*s));
	s->units = c->n_all;
	for (uint64_t i = 0; i < c->n_all; i++) {
		struct cunit *u = c->all[i];

		for (uint32_t j = 0; j < u->n; j++)
			add_conn(s, u->conns[j]);
		s->udp_sent += u->udp.n;
		s->udp_answered += u->udp.answered;
		s->udp_errors += u->udp.send_errors;
		s->udp_refused += u->udp.error != 0;
		add(&s->udp_client, &u->udp.rx.counts);
	}
}

static int clean(const struct stream_counts *n)
{
	return !n->lost && !n->duplicated && !n->reordered && !n->crc_errors && !n->foreign;
}

static void print_counts(FILE *f, const struct stream_counts *n)
{
	fprintf(f,
		"\"messages\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"lost\":%" PRIu64
		",\"duplicated\":%" PRIu64 ",\"reordered\":%" PRIu64 ",\"crc_errors\":%" PRIu64
		",\"foreign\":%" PRIu64,
		n->messages, n->bytes, n->lost, n->duplicated, n->reordered, n->crc_errors,
		n->foreign);
}

static void print_histogram(FILE *f, const char *name, const struct histogram *h)
{
	fprintf(f,
		",\"%s\":{\"samples\":%" PRIu64 ",\"p50\":%" PRIu64 ",\"p99\":%" PRIu64
		",\"max\":%" PRIu64 "}",
		name, h->total, histogram_quantile(h, 0.5), histogram_quantile(h, 0.99), h->max);
}

static void print_tcp(FILE *f, const struct sums *s)
{
	struct stream_counts both = s->client;

	add(&both, &s->server);
	fprintf(f, ",\"sent\":{\"messages\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", s->sent,
		s->sent_bytes);
	fprintf(f, ",\"received\":{\"messages\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
		s->client.messages, s->client.bytes);
	fprintf(f,
		",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64 ",\"reordered\":%" PRIu64
		",\"crc_errors\":%" PRIu64 ",\"foreign\":%" PRIu64 ",\"unaccounted\":%" PRIu64,
		both.lost, both.duplicated, both.reordered, both.crc_errors, both.foreign,
		s->unaccounted);
	fprintf(f, ",\"client\":{");
	print_counts(f, &s->client);
	fprintf(f, "},\"server\":{\"reports\":%" PRIu64 ",\"sent\":%" PRIu64 ",",
		s->server_reports, s->server_sent);
	print_counts(f, &s->server);
	fprintf(f, "},\"unfinished\":%" PRIu64 ",\"broken\":{", s->unfinished);
	for (int i = 0; i < BROKEN_KINDS; i++)
		fprintf(f, "%s\"%s\":%" PRIu64, i ? "," : "", broken_names[i], s->broken[i]);
	fprintf(f, "}");
}

static void print_missing(FILE *f, const struct client *c, enum report_kind kind)
{
	uint64_t n = 0, units = kind == REPORT_SHORT ? 0 : c->n_all;

	fprintf(f, ",\"missing\":[");
	for (uint64_t i = 0; i < units; i++) {
		const struct udp *u = &c->all[i]->udp;

		for (uint64_t seq = 0; seq < u->n && n < MISSING_LISTED; seq++) {
			if (udp_is_answered(u, seq))
				continue;
			fprintf(f,
				"%s{\"conn\":%u,\"seq\":%" PRIu64 ",\"t_send_ns\":%" PRIu64 "}",
				n++ ? "," : "", u->tx.conn, seq, u->t_send[seq]);
		}
	}
	fprintf(f, "]");
}

static void print_udp(FILE *f, const struct client *c, const struct sums *s,
		      enum report_kind kind)
{
	fprintf(f,
		",\"udp\":{\"sent\":%" PRIu64 ",\"received\":%" PRIu64 ",\"missing_total\":%" PRIu64
		",\"errors\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"client\":{",
		s->udp_sent, s->udp_answered, s->udp_sent - s->udp_answered, s->udp_errors,
		s->udp_refused);
	print_counts(f, &s->udp_client);
	fprintf(f, "},\"server\":{\"sent\":%" PRIu64 ",", s->udp_server_sent);
	print_counts(f, &s->udp_server);
	fprintf(f, "}");
	print_histogram(f, "rtt_us", &c->udp_rtt);
	print_missing(f, c, kind);
	fprintf(f, "}");
}

static void print_conns(FILE *f, const struct client *c)
{
	const char *comma = "";

	fprintf(f, ",\"connections\":[");
	for (uint64_t i = 0; i < c->n_all; i++) {
		for (uint32_t j = 0; j < c->all[i]->n; j++, comma = ",") {
			const struct conn *k = c->all[i]->conns[j];

			fprintf(f,
				"%s{\"conn\":%u,\"id\":%" PRIu64 ",\"index\":%u,\"local\":\"%s\","
				"\"remote\":\"%s\",\"state\":\"%s\",\"again\":%s,\"sent\":%" PRIu64
				",\"received\":%" PRIu64 ",\"retransmits\":%u,"
				"\"longest_silence_us\":%" PRIu64 "}",
				comma, k->tx.conn, k->unit->id, j, k->local, k->remote,
				outcome(k), k->again ? "true" : "false", k->tx.messages,
				k->rx.counts.messages, k->retransmits, k->silence / 1000);
		}
	}
	fprintf(f, "]");
}

static void print_gaps(FILE *f, const struct client *c, enum report_kind kind)
{
	uint64_t n = kind == REPORT_SHORT ? 0 : c->n_gaps;

	fprintf(f, ",\"gaps_dropped\":%" PRIu64 ",\"gaps\":[", c->gaps_dropped);
	for (uint64_t i = 0; i < n; i++)
		fprintf(f, "%s[%u,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", c->gaps[i].conn,
			c->gaps[i].from, c->gaps[i].to);
	fprintf(f, "]");
}

static void print_report(FILE *f, const struct client *c, const struct sums *s,
			 enum report_kind kind, int tcp_ok, int udp_ok)
{
	fprintf(f,
		"{\"event\":\"report\",\"final\":%s,\"ok\":%s,\"tcp_ok\":%s,\"udp_ok\":%s,"
		"\"t_ns\":%" PRIu64 ",\"seconds\":%.3f,\"units\":%" PRIu64 ",\"tcp\":%" PRIu64,
		kind == REPORT_FINAL ? "true" : "false", tcp_ok && udp_ok ? "true" : "false",
		tcp_ok ? "true" : "false", udp_ok ? "true" : "false", now_ns(),
		(double)(now_ns() - c->started) / 1e9, s->units, s->conns);
	print_tcp(f, s);
	fprintf(f, ",\"reconnects\":%" PRIu64 ",\"reconnect_failed\":%" PRIu64, c->reconnects,
		c->reconnect_failed);
	print_udp(f, c, s, kind);
	print_histogram(f, "rtt_us", &c->rtt);
	fprintf(f, ",\"longest_silence_us\":%" PRIu64 ",\"tcp_info\":{\"retransmits\":%" PRIu64 "}",
		s->silence / 1000, s->retransmits);
	print_conns(f, c);
	print_gaps(f, c, kind);
	fprintf(f, "}\n");
}

/* Replaced whole: who reads the file never sees half a report. */
static void write_file(const struct client *c, const char *text)
{
	char name[4096];
	FILE *f;

	snprintf(name, sizeof(name), "%s.new", c->report);
	f = fopen(name, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) || rename(name, c->report))
		fprintf(stderr, "probe-client: %s: %s\n", c->report, strerror(errno));
}

int report(struct client *c, enum report_kind kind)
{
	char *text = NULL;
	size_t size;
	struct sums s;
	int tcp_ok, udp_ok;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return 0;
	sum_up(c, &s);
	tcp_ok = clean(&s.client) && clean(&s.server) && !s.unfinished && !s.unaccounted &&
		 !c->reconnects;
	udp_ok = clean(&s.udp_client) && clean(&s.udp_server) && s.udp_sent == s.udp_answered &&
		 !s.udp_refused;
	print_report(f, c, &s, kind, tcp_ok, udp_ok);
	fclose(f);
	fputs(text, stdout);
	fflush(stdout);
	/* not while it measures: a file system may let it wait for seconds */
	if (c->report && kind == REPORT_FINAL)
		write_file(c, text);
	free(text);
	return tcp_ok && udp_ok;
}
