// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels to the other nodes: one is opened to each and kept open, one is accepted from each.
 * Requests go out by the opened one; answers come back on the channel of their request. Who is let
 * in is decided in peers.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

#define RETRY_US 100000
#define REFUSED_US 1000000 /* after one that was refused: that rarely changes soon */
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
	uint64_t greeted_ns;   /* when it last connected */
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

uint64_t nodes_greeted_ns(struct agent *a, uint32_t node)
{
	return by_number(a, node)->greeted_ns;
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

/* channel data: the node at its other end, in the configuration */
static struct node *node_of(struct agent *a, const struct channel *c)
{
	return &a->nodes[(const struct config_node *)channel_data(c) - a->config.nodes];
}

static int on_hello(struct channel *c, const Peer__Hello *hello, void *arg)
{
	struct agent *a = arg;
	struct node *n = node_of(a, c);

	if (hello->node != n->config->number)
		return channel_refuse(
			c, PEER_NUMBER,
			"it says %u, the configuration says %u: is it the same file on "
			"both nodes?",
			hello->node, n->config->number);
	if (c != n->out) { /* accepted: it spoke first */
		n->greeted_ns = boottime_ns();
		return channels_accepted(&a->channels, n->config, true, NULL) > ACCEPTED_MAX ?
			       channel_refuse(c, PEER_BUSY, "more than %u", ACCEPTED_MAX) :
			       channel_send_hello(c);
	}
	memcpy(n->boot, hello->boot.data, 16);
	n->up = true;
	log_info("node %s is connected", n->config->name);
	converge_node(a, n->config->number);
	moves_node_up(a, n->config->number);
	return 0;
}

static bool on_admit(struct channel *c, enum message type, const Peer__Move *m, uint32_t size,
		     void *arg)
{
	return move_admits(arg, node_of(arg, c)->config->number, type, m, size);
}

static void on_message(struct channel *c, enum message type, const Peer__Move *m,
		       const uint8_t *trailer, uint32_t size, void *arg)
{
	move_message(arg, c, node_of(arg, c)->config->number, type, m, trailer, size);
}

static void on_closed(struct channel *c, int error, void *arg)
{
	struct agent *a = arg;
	struct node *n = node_of(a, c);
	const char *detail;
	enum peer_reason why = channel_reason(c, &detail);

	if (why)
		peers_refused(a, n->config, c, c == n->out);
	if (c == n->out) {
		if (n->up)
			log_warning("node %s is disconnected: %s", n->config->name,
				    why ? peer_reason_id(why) : strerror(-error));
		n->out = NULL;
		n->up = false;
		sd_event_source_set_time_relative(n->retry,
						  why && why != PEER_CUT ? REFUSED_US : RETRY_US);
		sd_event_source_set_enabled(n->retry, SD_EVENT_ONESHOT);
	}
	move_channel_closed(a, c);
}

static const struct channel_ops ops = { on_hello, on_admit, on_message, on_closed };

static int dial(struct node *n)
{
	struct agent *a = n->agent;
	struct sockaddr_storage ss;
	socklen_t size = addr_to_sockaddr(n->config->address[0], htons(n->config->port), false,
					  &ss);
	int fd = peers_socket(n->config), r;

	if (fd < 0)
		return fd;
	/* from the address that the other node knows us by */
	r = addr_is_v4(n->config->address[0]) == addr_is_v4(a->config.self->address[0]) ?
		    peers_bind(fd, a->config.self, 0) :
		    0;
	if (!r && connect(fd, (struct sockaddr *)&ss, size) && errno != EINPROGRESS)
		r = -errno;
	r = r ? r :
		channel_new(&n->out, &a->channels, fd, peers_context(a), true, n->config->name,
			    (void *)n->config);
	if (r)
		close(fd);
	return r;
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

int nodes_start(struct agent *a)
{
	Peer__Hello hello = PEER__HELLO__INIT;
	int r = 0;

	hello.version = PROTOCOL_VERSION;
	hello.oldest = PROTOCOL_OLDEST;
	hello.features = PROTOCOL_FEATURES;
	hello.node = a->config.self->number;
	hello.boot = (ProtobufCBinaryData){ sizeof(a->boot), a->boot };
	a->channels = (struct channels){ .event = a->event, .ops = &ops, .arg = a, .hello = hello };
	a->nodes = calloc(a->config.n_nodes, sizeof(*a->nodes));
	if (!a->nodes)
		return -ENOMEM;
	if (a->config.n_nodes > 1)
		r = peers_listen(a);
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
