// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels to the other nodes: one is opened to each and kept open, one is accepted from each.
 * Requests go out by the opened one; answers come back on the channel of their request. Nobody is
 * let in but from an address of a node in the configuration.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

#define RETRY_US 100000
/* One is wanted; those of an earlier agent there may not have been closed yet. */
#define ACCEPTED_MAX 8
#define KNOWN_MAX (1U << 20)

struct node {
	struct agent *agent;
	const struct config_node *config;
	struct channel *out;
	bool up; /* its HELLO came */
	uint8_t boot[16];
	sd_event_source *retry;
	unsigned int accepted; /* channels from it */
	uint8_t (*known)[16];  /* units that it has said it knows, until its list is whole */
	size_t n_known; /* above KNOWN_MAX: too many, or no memory */
};

static struct node *by_number(struct agent *a, uint32_t number)
{
	for (unsigned int i = 0; i < a->config.n_nodes; i++)
		if (a->nodes[i].config->number == number)
			return &a->nodes[i];
	return NULL;
}

struct channel *nodes_channel(struct agent *a, uint32_t number)
{
	struct node *n = by_number(a, number);

	return n && n->up ? n->out : NULL;
}

unsigned int nodes_connected(struct agent *a, const char **missing)
{
	unsigned int n = 0;

	*missing = NULL;
	for (unsigned int i = 0; i < a->config.n_nodes; i++) {
		const struct node *node = &a->nodes[i];

		if (node->up)
			n++;
		else if (node->config != a->config.self)
			*missing = node->config->name;
	}
	return n;
}

void nodes_know(struct agent *a, uint32_t node, const ProtobufCBinaryData *uuids, size_t count)
{
	struct node *n = by_number(a, node);
	size_t room = n->n_known > KNOWN_MAX ? 0 : KNOWN_MAX - n->n_known;
	void *grown = count <= room ?
			      realloc(n->known, (n->n_known + count) * sizeof(*n->known) + 1) :
			      NULL;

	if (!grown) { /* then its list is not whole, and nothing follows from it */
		n->n_known = KNOWN_MAX + 1;
		return;
	}
	n->known = grown;
	for (size_t i = 0; i < count; i++)
		if (uuids[i].len == 16)
			memcpy(n->known[n->n_known++], uuids[i].data, 16);
}

static int by_octets(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

bool nodes_known_whole(struct agent *a, uint32_t node)
{
	struct node *n = by_number(a, node);

	if (n->n_known > KNOWN_MAX)
		return false;
	qsort(n->known, n->n_known, sizeof(*n->known), by_octets);
	return true;
}

bool nodes_knows(struct agent *a, uint32_t node, const uint8_t uuid[16])
{
	const struct node *n = by_number(a, node);

	return bsearch(uuid, n->known, n->n_known, sizeof(*n->known), by_octets);
}

void nodes_forget_known(struct agent *a, uint32_t node)
{
	struct node *n = by_number(a, node);

	free(n->known);
	n->known = NULL;
	n->n_known = 0;
}

const uint8_t *nodes_boot(struct agent *a, uint32_t number)
{
	struct node *n = by_number(a, number);

	return n && n->up ? n->boot : NULL;
}

void nodes_tell(struct agent *a, enum message type, const Peer__Move *m, uint32_t but,
		uint32_t and_but)
{
	for (unsigned int i = 0; i < a->config.n_nodes; i++) {
		struct node *n = &a->nodes[i];

		if (n->up && n->config->number != but && n->config->number != and_but)
			channel_send(n->out, type, m, NULL, 0);
	}
}

/* channel data: the node at its other end */
static int on_hello(struct channel *c, const Peer__Hello *hello, void *arg)
{
	struct node *n = channel_data(c);
	struct agent *a = arg;

	if (hello->node != n->config->number) {
		log_warning("node %s says that it is number %u, the configuration says %u",
			    n->config->name, hello->node, n->config->number);
		return -EPROTO;
	}
	if (c != n->out) /* accepted: it spoke first */
		return channel_send_hello(c, a->config.self->number, a->boot);
	memcpy(n->boot, hello->boot.data, 16);
	n->up = true;
	log_info("node %s is connected", n->config->name);
	converge_node(a, n->config->number);
	moves_node_up(a, n->config->number);
	return 0;
}

static void on_message(struct channel *c, enum message type, const Peer__Move *m,
		       const uint8_t *trailer, uint32_t size, void *arg)
{
	struct node *n = channel_data(c);

	move_message(arg, c, n->config->number, type, m, trailer, size);
}

static void on_closed(struct channel *c, int reason, void *arg)
{
	struct node *n = channel_data(c);

	if (c == n->out) {
		if (n->up)
			log_warning("node %s is disconnected: %s", n->config->name,
				    strerror(-reason));
		n->out = NULL;
		n->up = false;
		sd_event_source_set_time_relative(n->retry, RETRY_US);
		sd_event_source_set_enabled(n->retry, SD_EVENT_ONESHOT);
	} else {
		n->accepted--;
	}
	move_channel_closed(arg, c);
}

static const struct channel_ops ops = { on_hello, on_message, on_closed };

/* A peer that does not answer, not even a SYN, is gone after about 3 seconds. */
static void tune(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },	   { SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 1 },	   { IPPROTO_TCP, TCP_KEEPINTVL, 1 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 2 },	   { IPPROTO_TCP, TCP_USER_TIMEOUT, 3000 },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(options); i++)
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			       sizeof(int)))
			log_warning("cannot set socket option %d: %s", options[i].name,
				    strerror(errno));
}

static int tcp_socket(const struct config_node *n)
{
	int one = 1, family = addr_is_v4(n->address[0]) ? AF_INET : AF_INET6;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	tune(fd);
	return fd;
}

static int bind_to(int fd, const struct config_node *n, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(n->address[0], htons(port), false, &ss);

	return bind(fd, (struct sockaddr *)&ss, size) ? -errno : 0;
}

static int dial(struct node *n)
{
	struct agent *a = n->agent;
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(n->config->address[0], htons(n->config->port), false,
					  &ss);
	int fd = tcp_socket(n->config), r;

	if (fd < 0)
		return fd;
	/* from the address that the other node knows us by */
	r = addr_is_v4(n->config->address[0]) == addr_is_v4(a->config.self->address[0]) ?
		    bind_to(fd, a->config.self, 0) :
		    0;
	if (!r && connect(fd, (struct sockaddr *)&ss, size) && errno != EINPROGRESS)
		r = -errno;
	r = r ? r : channel_new(&n->out, a->event, fd, &ops, a);
	if (r) {
		close(fd);
		return r;
	}
	channel_set_data(n->out, n);
	return channel_send_hello(n->out, a->config.self->number, a->boot);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *arg)
{
	struct node *n = arg;

	(void)usec;
	if (n->out || !dial(n))
		return 0;
	sd_event_source_set_time_relative(s, RETRY_US);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static struct node *by_address(struct agent *a, const struct sockaddr_storage *ss)
{
	uint8_t addr[16];
	uint16_t port;

	if (addr_from_sockaddr(ss, addr, &port))
		return NULL;
	for (unsigned int i = 0; i < a->config.n_nodes; i++)
		for (unsigned int k = 0; k < a->nodes[i].config->addresses; k++)
			if (a->nodes[i].config != a->config.self &&
			    !memcmp(a->nodes[i].config->address[k], addr, 16))
				return &a->nodes[i];
	return NULL;
}

static int on_accept(sd_event_source *s, int listener, uint32_t events, void *arg)
{
	struct agent *a = arg;
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);
	int fd = accept4(listener, (struct sockaddr *)&ss, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct channel *c;
	struct node *n;

	(void)events;
	if (fd < 0) {
		accept_later(s, errno);
		return 0;
	}
	tune(fd);
	n = by_address(a, &ss);
	if (!n || n->accepted == ACCEPTED_MAX || channel_new(&c, a->event, fd, &ops, a)) {
		log_warning("refused a connection from %s", n ? n->config->name :
							       "an address of no node");
		close(fd);
		return 0;
	}
	n->accepted++;
	channel_set_data(c, n);
	return 0;
}

static int listen_to_nodes(struct agent *a)
{
	const struct config_node *self = a->config.self;
	int fd = tcp_socket(self), r;

	if (fd < 0)
		return fd;
	r = bind_to(fd, self, self->port);
	if (!r && listen(fd, 64))
		r = -errno;
	if (r) {
		char text[ADDR_TEXT];

		log_error("cannot listen on %s port %u: %s", addr_text(self->address[0], text),
			  self->port, strerror(-r));
		close(fd);
		return r;
	}
	r = sd_event_add_io(a->event, NULL, fd, EPOLLIN, on_accept, a);
	return r < 0 ? r : 0;
}

int nodes_start(struct agent *a)
{
	int r = listen_to_nodes(a);

	a->nodes = calloc(a->config.n_nodes, sizeof(*a->nodes));
	if (!a->nodes)
		return -ENOMEM;
	for (unsigned int i = 0; !r && i < a->config.n_nodes; i++) {
		struct node *n = &a->nodes[i];

		n->agent = a;
		n->config = &a->config.nodes[i];
		if (n->config == a->config.self)
			continue;
		r = sd_event_add_time_relative(a->event, &n->retry, CLOCK_MONOTONIC, 0, 0,
					       on_retry, n);
		r = r < 0 ? r : 0;
	}
	return r;
}
