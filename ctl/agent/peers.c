// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who is let in. A connection has to come from an address of a node, then has to show that node's
 * certificate (ctl/peer/tls.c), then its number in HELLO (nodes.c). Every refusal is counted by its
 * reason and said in the log, with its cause and what can be done.
 * Invariant: whoever is not let in costs a bounded number of descriptors and handshakes, and is
 * served after all that is let in.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include "agent/agent.h"
#include "agent/upgrade.h"
#include "base/log.h"
#include "base/util.h"
#include "peer/identity.h"

/* Handshakes that are not through HELLO; a further one takes the place of the oldest. A good one
 * takes milliseconds. */
#define PENDING_NODE 8
#define PENDING_MAX 64
#define PRIORITY_ACCEPT 20 /* after channels and handshakes, see channel.c */
#define BACKLOG 512 /* where it is full, a SYN is dropped, and a good one comes again after 1 s */
#define QUIET_NS (10 * SEC_NS)

struct peers {
	struct identity *identity;
	uint64_t count[PEER_REASONS];
	/* when it was last said, of each node (the last row: of none), accepted and dialed */
	uint64_t (*said)[2][PEER_REASONS];
};

int peers_open(struct agent *a)
{
	struct peers *p = calloc(1, sizeof(*p));
	char error[512];

	a->peers = p;
	if (p)
		p->said = calloc(a->config.n_nodes + 1, sizeof(*p->said));
	if (!p || !p->said) {
		log_error("no memory");
		return -ENOMEM;
	}
	if (a->config.n_nodes < 2)
		return 0; /* nobody to talk to */
	if (!identity_load(&p->identity, a->config.pki, a->config.self->name,
			   a->user.uid, error, sizeof(error)))
		return 0;
	log_error("%s", error);
	return -EINVAL;
}

int peers_check(struct agent *a, const struct config *c, char *error, size_t size)
{
	struct identity *id = NULL;
	int r = c->n_nodes < 2 ? 0 :
				 identity_load(&id, c->pki, c->self->name, a->user.uid, error, size);

	identity_free(id);
	return r;
}

SSL_CTX *peers_context(struct agent *a)
{
	char error[512];
	int r = identity_refresh(a->peers->identity, error, sizeof(error));

	if (r < 0)
		log_warning("the certificate in use stays: %s", error);
	else if (r)
		log_info("read the certificate of this node anew");
	return identity_context(a->peers->identity);
}

uint64_t peers_count(const struct agent *a, enum peer_reason reason)
{
	return a->peers->count[reason];
}

/* Repeated within ten seconds, it is counted and not said again: whoever is refused comes back. */
static bool say_it(struct agent *a, const struct config_node *n, bool dialed, enum peer_reason why)
{
	size_t row = n ? (size_t)(n - a->config.nodes) : a->config.n_nodes;
	uint64_t *said = &a->peers->said[row][dialed][why], now = boottime_ns();

	if (*said && now - *said < QUIET_NS)
		return false;
	*said = now;
	return true;
}

void peers_refused(struct agent *a, const struct config_node *n, struct channel *c, bool dialed)
{
	const char *detail;
	enum peer_reason why = channel_reason(c, &detail);

	if (why == PEER_WRONG_NAME && !config_node_by_name(&a->config, channel_node(c)))
		why = PEER_UNKNOWN_NAME;
	a->peers->count[why]++;
	if (say_it(a, n, dialed, why))
		log_warning("%s node %s: %s: %s%s%s",
			    channel_is_open(c) ? "ended a connection with" :
			    dialed             ? "no connection to" :
						 "refused a connection from",
			    n->name, peer_reason_id(why), peer_reason_text(why),
			    detail[0] ? "; " : "", detail);
}

static void refuse_address(struct agent *a, const struct sockaddr_storage *ss)
{
	uint8_t addr[16] = {};
	char text[ADDR_TEXT];
	uint16_t port;

	a->peers->count[PEER_ADDRESS]++;
	if (say_it(a, NULL, false, PEER_ADDRESS) && !addr_from_sockaddr(ss, addr, &port))
		log_warning("refused a connection from %s: %s: %s", addr_text(addr, text),
			    peer_reason_id(PEER_ADDRESS), peer_reason_text(PEER_ADDRESS));
}

/* A peer that does not answer, not even a SYN, is gone after about 3 seconds. */
static void tune(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },  { SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 1 }, { IPPROTO_TCP, TCP_KEEPINTVL, 1 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 2 },  { IPPROTO_TCP, TCP_USER_TIMEOUT, 3000 },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(options); i++)
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			       sizeof(int)))
			log_warning("cannot set socket option %d: %s", options[i].name,
				    strerror(errno));
}

int peers_socket(const struct config_node *n)
{
	int one = 1, family = addr_is_v4(n->address[0]) ? AF_INET : AF_INET6;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	tune(fd);
	return fd;
}

int peers_bind(int fd, const struct config_node *n, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(n->address[0], htons(port), false, &ss);

	return bind(fd, (struct sockaddr *)&ss, size) ? -errno : 0;
}

static const struct config_node *by_address(struct agent *a, const struct sockaddr_storage *ss)
{
	uint8_t addr[16];
	uint16_t port;

	if (addr_from_sockaddr(ss, addr, &port))
		return NULL;
	for (unsigned int i = 0; i < a->config.n_nodes; i++) {
		const struct config_node *n = &a->config.nodes[i];

		for (unsigned int k = 0; n != a->config.self && k < n->addresses; k++)
			if (!memcmp(n->address[k], addr, 16))
				return n;
	}
	return NULL;
}

/* Room for one more: those of this node first, so that one node cannot keep the others out. */
static void make_room(struct agent *a, const struct config_node *n)
{
	struct channel *oldest = NULL;

	if (channels_accepted(&a->channels, n, false, &oldest) >= PENDING_NODE)
		channel_refuse(oldest, PEER_BUSY, "%u handshakes are not done yet", PENDING_NODE);
	if (channels_accepted(&a->channels, NULL, false, &oldest) >= PENDING_MAX)
		channel_refuse(oldest, PEER_BUSY, "%u handshakes are not done yet", PENDING_MAX);
}

static int on_accept(sd_event_source *s, int listener, uint32_t events, void *arg)
{
	struct agent *a = arg;
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);
	int fd = accept4(listener, (struct sockaddr *)&ss, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	const struct config_node *n;
	struct channel *c;

	(void)events;
	if (fd < 0) {
		accept_later(s, errno);
		return 0;
	}
	n = by_address(a, &ss);
	if (!n) {
		refuse_address(a, &ss);
		close(fd);
		return 0;
	}
	tune(fd);
	make_room(a, n);
	if (channel_new(&c, &a->channels, fd, peers_context(a), false, n->name, (void *)n)) {
		log_warning("no memory for a connection from node %s", n->name);
		close(fd);
	}
	return 0;
}

static int open_listener(const struct config_node *self, int *fd)
{
	int r;

	*fd = peers_socket(self);
	if (*fd < 0)
		return *fd;
	r = peers_bind(*fd, self, self->port);
	return r ? r : listen(*fd, BACKLOG) ? -errno : 0;
}

/* Of the agent before this one, where the configuration has not changed in it. -1 none. */
static int handed_listener(const struct config_node *self)
{
	_cleanup_close_ int fd = upgrade_handed(HANDED_NODE);
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);
	uint8_t addr[16];
	uint16_t port;

	if (!is_listener(fd, SOCK_STREAM) || getsockname(fd, (struct sockaddr *)&ss, &size) ||
	    addr_from_sockaddr(&ss, addr, &port) || memcmp(addr, self->address[0], 16) ||
	    ntohs(port) != self->port)
		return -1;
	return TAKE_FD(fd);
}

int peers_listen(struct agent *a)
{
	const struct config_node *self = a->config.self;
	int fd = handed_listener(self), r;
	sd_event_source *s;

	r = fd < 0 ? open_listener(self, &fd) : 0;
	if (r) {
		char text[ADDR_TEXT];

		log_error("cannot listen on %s port %u: %s", addr_text(self->address[0], text),
			  self->port, strerror(-r));
		close_fd(&fd);
		return r;
	}
	upgrade_keep(HANDED_NODE, fd);
	r = sd_event_add_io(a->event, &s, fd, EPOLLIN, on_accept, a);
	return r < 0 ? r : sd_event_source_set_priority(s, PRIORITY_ACCEPT);
}
