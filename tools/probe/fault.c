// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe-fault: a relay between probe-client and probe-server that does one thing wrong, once, so
 * that a test can see the probe find it. It knows where a message begins, and nothing else of it.
 *
 * No loop and no state: a process for each direction of each connection, which dies with its
 * parent. Slow, on purpose simple.
 *
 * Invariant: exactly one message (the N-th of that direction of the first connection) is treated
 * wrongly; all other octets pass as they came.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "net.h"
#include "stream.h"

enum fault {
	FAULT_NONE,
	FAULT_LOSE,
	FAULT_DOUBLE,
	FAULT_SWAP,
	FAULT_FLIP_HEADER,
	FAULT_FLIP_LENGTH,
	FAULT_FLIP_PAYLOAD,
	FAULT_DROP_OCTET,
	FAULT_RST,
	FAULT_FIN,
	FAULT_STALL,
	FAULTS,
};

static const char *const fault_names[FAULTS] = {
	"none", "lose", "double", "swap", "flip-header", "flip-length", "flip-payload",
	"drop-octet", "rst", "fin", "stall",
};

struct message {
	uint8_t data[STREAM_MAX];
	size_t n;
};

static int read_all(int fd, uint8_t *out, size_t n)
{
	while (n) {
		ssize_t got = read(fd, out, n);

		if (got <= 0)
			return -1;
		out += got;
		n -= (size_t)got;
	}
	return 0;
}

static int write_all(int fd, const uint8_t *data, size_t n)
{
	while (n) {
		ssize_t put = write(fd, data, n);

		if (put <= 0)
			return -1;
		data += put;
		n -= (size_t)put;
	}
	return 0;
}

static int read_message(int fd, struct message *m)
{
	struct stream_header h;

	if (read_all(fd, m->data, STREAM_HEADER))
		return -1;
	memcpy(&h, m->data, sizeof(h));
	m->n = h.len;
	if (m->n < STREAM_HEADER || m->n > STREAM_MAX)
		return -1;
	return read_all(fd, m->data + STREAM_HEADER, m->n - STREAM_HEADER);
}

static void cut_octet(struct message *m, size_t at)
{
	m->n--;
	memmove(m->data + at, m->data + at + 1, m->n - at);
}

/* At once, though another process holds the descriptor too: a disconnect sends RST. */
static void reset(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	connect(fd, &none, sizeof(none));
}

/* The client's side first: the other relay ends what it has left when the server's side breaks. */
static void reset_both(int client, int server)
{
	reset(client);
	reset(server);
}

/* Sends the message wrongly. Not 0: the connection is not relayed any further. */
static int injure(enum fault fault, struct message *m, int from, int to, int from_client)
{
	static struct message next;

	switch (fault) {
	case FAULT_LOSE:
		return 0;
	case FAULT_DOUBLE:
		return write_all(to, m->data, m->n) || write_all(to, m->data, m->n);
	case FAULT_SWAP:
		return read_message(from, &next) || write_all(to, next.data, next.n) ||
		       write_all(to, m->data, m->n);
	case FAULT_FLIP_HEADER:
		m->data[offsetof(struct stream_header, seq)] ^= 1;
		break;
	case FAULT_FLIP_LENGTH:
		m->data[offsetof(struct stream_header, len) + 1] ^= 4;
		break;
	case FAULT_FLIP_PAYLOAD:
		m->data[m->n - 1] ^= 0x80;
		break;
	case FAULT_DROP_OCTET:
		cut_octet(m, STREAM_HEADER);
		break;
	case FAULT_RST:
		reset_both(from_client ? from : to, from_client ? to : from);
		return -1;
	case FAULT_FIN:
		return -1;
	case FAULT_STALL:
		pause();
		break;
	default:
		break;
	}
	return write_all(to, m->data, m->n);
}

/* Whole messages until an end or the fault; then the rest as it comes. */
static void relay(int from, int to, enum fault fault, uint64_t at, int from_client)
{
	static struct message m;
	uint64_t n = 0;
	int err = 0;

	while (!err && !read_message(from, &m))
		err = n++ == at ? injure(fault, &m, from, to, from_client) : write_all(to, m.data, m.n);
	if (err && fault == FAULT_RST)
		return;
	shutdown(to, SHUT_WR);
	if (err)
		shutdown(from, SHUT_RDWR);
}

static void spawn(int client, int server, enum fault fault, uint64_t at, int from_client)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (from_client)
		relay(client, server, fault, at, 1);
	else
		relay(server, client, fault, at, 0);
	_exit(0);
}

static int dial(const union address *to)
{
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !connect(fd, &to->sa, address_size(to)))
		return fd;
	return -1;
}

static int parse_fault(const char *text)
{
	int i = 0;

	while (i < FAULTS && strcmp(text, fault_names[i]))
		i++;
	return i;
}

static void serve(int listener, const union address *to, enum fault fault, int from_client,
		  uint64_t at)
{
	enum fault forward = from_client ? fault : FAULT_NONE;
	enum fault back = from_client ? FAULT_NONE : fault;

	for (;;) {
		int client = accept(listener, NULL, NULL), server;

		if (client < 0)
			continue;
		server = dial(to);
		if (server >= 0) {
			spawn(client, server, forward, at, 1);
			spawn(client, server, back, at, 0);
			close(server);
		}
		close(client);
		forward = back = FAULT_NONE;
	}
}

int main(int argc, char **argv)
{
	union address from, to;
	uint64_t port, to_port, at;
	int fault = argc == 7 ? parse_fault(argv[5]) : FAULTS, listener;

	if (fault == FAULTS || number_parse(&port, argv[2], UINT16_MAX) ||
	    number_parse(&to_port, argv[3], UINT16_MAX) || number_parse(&at, argv[6], 1000000) ||
	    address_parse(&from, argv[1], (uint16_t)port) ||
	    address_parse(&to, argv[1], (uint16_t)to_port)) {
		fputs("usage: probe-fault ADDR PORT TO-PORT c2s|s2c FAULT N\n"
		      "  FAULT: none lose double swap flip-header flip-length flip-payload\n"
		      "         drop-octet rst fin stall\n",
		      stderr);
		return 2;
	}
	listener = tcp_listen(&from);
	if (listener < 0) {
		fprintf(stderr, "probe-fault: %s\n", strerror(-listener));
		return EXIT_FAILURE;
	}
	/* accept() is to wait. */
	fcntl(listener, F_SETFL, 0);
	signal(SIGCHLD, SIG_IGN);
	puts("{\"event\":\"listening\"}");
	fflush(stdout);
	serve(listener, &to, (enum fault)fault, !strcmp(argv[4], "c2s"), at);
}
