// SPDX-License-Identifier: BSD-2-Clause
/* Images to messages and back, see image.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "move/image.h"

#define WSCALE_MAX 14 /* RFC 7323 section 2.3; the kernel refuses more with EFBIG */
#define MSS_MIN 48
#define REUSE_MAX 1 /* SK_CAN_REUSE; 2 is forced by repair, which is read before */

static ProtobufCBinaryData octets(const uint8_t *data, size_t size)
{
	return (ProtobufCBinaryData){ size, (uint8_t *)data };
}

void flow_pack(Peer__Flow *to, const struct ferry_flow *from)
{
	peer__flow__init(to);
	to->protocol = from->proto;
	to->remote = octets(from->saddr, 16);
	to->local = octets(from->daddr, 16);
	to->remote_port = ntohs(from->sport);
	to->local_port = ntohs(from->dport);
}

int flow_unpack(struct ferry_flow *to, const Peer__Flow *from)
{
	if (!from || from->remote.len != 16 || from->local.len != 16 || from->remote_port > 65535 ||
	    !from->local_port || from->local_port > 65535 ||
	    (from->protocol != IPPROTO_TCP && from->protocol != IPPROTO_UDP))
		return -EPROTO;
	memset(to, 0, sizeof(*to));
	memcpy(to->saddr, from->remote.data, 16);
	memcpy(to->daddr, from->local.data, 16);
	to->sport = htons((uint16_t)from->remote_port);
	to->dport = htons((uint16_t)from->local_port);
	to->proto = (uint8_t)from->protocol;
	/* only an unconnected UDP socket has no remote port */
	if (!to->sport && to->proto != IPPROTO_UDP)
		return -EPROTO;
	return addr_is_v4(to->saddr) == addr_is_v4(to->daddr) ? 0 : -EPROTO;
}

/* Fields that are called the same on both sides. */
#define FIELDS(X)                                                                                  \
	X(v6_socket)                                                                               \
	X(connected) X(rcv_nxt) X(write_seq) X(inq) X(outq) X(unsent) X(mss) X(options)            \
		X(snd_wscale) X(rcv_wscale) X(timestamp) X(usec) X(sndbuf) X(rcvbuf) X(buf_lock)   \
			X(keepalive) X(user_timeout) X(nodelay) X(reuseaddr) X(peek_off)
#define WINDOW(X) X(snd_wl1) X(snd_wnd) X(max_window) X(rcv_wnd) X(rcv_wup)

static int pack_datagrams(Peer__Socket *s, const struct repair_image *image)
{
	const struct datagram *d;
	Peer__Datagram *list;
	size_t n = 0;

	for (d = image->datagrams; d; d = d->next)
		n++;
	if (!n)
		return 0;
	s->datagrams = calloc(n, sizeof(*s->datagrams));
	list = calloc(n, sizeof(*list));
	if (!s->datagrams || !list) {
		free(list);
		return -ENOMEM;
	}
	for (d = image->datagrams; d; d = d->next) {
		Peer__Datagram *to = &list[s->n_datagrams];

		peer__datagram__init(to);
		to->from = octets(d->from, 16);
		to->port = ntohs(d->port);
		to->size = (uint32_t)d->size;
		s->datagrams[s->n_datagrams++] = to;
	}
	return 0;
}

static int pack(struct packed_images *p, unsigned int i, const struct repair_image *image)
{
	Peer__Socket *s = &p->sockets[i];

	peer__socket__init(s);
	flow_pack(&p->flows[i], &image->flow);
	s->flow = &p->flows[i];
	s->role = (char *)image->role;
#define X(field) s->field = image->field;
	FIELDS(X)
#undef X
#define X(field) s->field = image->window.field;
	WINDOW(X)
#undef X
	p->list[i] = s;
	p->count = i + 1;
	if (image->flow.proto == IPPROTO_TCP) {
		if (image->recv)
			p->chunks[p->n_chunks++] = (struct chunk){ image->recv, image->inq };
		if (image->send)
			p->chunks[p->n_chunks++] = (struct chunk){ image->send, image->outq };
		return 0;
	}
	for (const struct datagram *d = image->datagrams; d; d = d->next)
		p->chunks[p->n_chunks++] = (struct chunk){ d->data, (uint32_t)d->size };
	return pack_datagrams(s, image);
}

int images_pack(struct packed_images *p, const struct repair_image *images, unsigned int count)
{
	size_t chunks = 0;
	int r = 0;

	memset(p, 0, sizeof(*p));
	for (unsigned int i = 0; i < count; i++) {
		chunks += 2;
		for (const struct datagram *d = images[i].datagrams; d; d = d->next)
			chunks++;
	}
	p->sockets = calloc(count, sizeof(*p->sockets));
	p->list = calloc(count, sizeof(*p->list));
	p->flows = calloc(count, sizeof(*p->flows));
	p->chunks = calloc(chunks, sizeof(*p->chunks));
	if (!p->sockets || !p->list || !p->flows || !p->chunks)
		r = -ENOMEM;
	for (unsigned int i = 0; !r && i < count; i++)
		r = pack(p, i, &images[i]);
	if (r)
		images_free(p);
	return r;
}

void images_free(struct packed_images *p)
{
	for (unsigned int i = 0; i < p->count; i++) {
		if (p->sockets[i].datagrams)
			free(p->sockets[i].datagrams[0]);
		free(p->sockets[i].datagrams);
	}
	free(p->sockets);
	free(p->list);
	free(p->flows);
	free(p->chunks);
	memset(p, 0, sizeof(*p));
}

/* The next size octets of the trailer, copied. */
static int take(const uint8_t **trailer, uint32_t *left, uint32_t size, uint8_t **to)
{
	if (size > *left)
		return -EPROTO;
	*to = malloc(size + 1);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, *trailer, size);
	*trailer += size;
	*left -= size;
	return 0;
}

static int unpack_datagrams(struct repair_image *image, const Peer__Socket *s,
			    const uint8_t **trailer, uint32_t *left)
{
	struct datagram **last = &image->datagrams;

	for (size_t i = 0; i < s->n_datagrams; i++) {
		const Peer__Datagram *from = s->datagrams[i];
		struct datagram *d;

		if (from->from.len != 16 || from->port > 65535 || from->size > *left)
			return -EPROTO;
		d = malloc(sizeof(*d) + from->size);
		if (!d)
			return -ENOMEM;
		d->next = NULL;
		memcpy(d->from, from->from.data, 16);
		d->port = htons((uint16_t)from->port);
		d->size = from->size;
		memcpy(d->data, *trailer, from->size);
		*trailer += from->size;
		*left -= from->size;
		*last = d;
		last = &d->next;
	}
	return 0;
}

/* What the kernel would refuse, or worse: after the flip. A byte-swapped number is out of range. */
static bool in_range(const Peer__Socket *s)
{
	return s->inq <= REPAIR_QUEUE_MAX && s->outq <= REPAIR_QUEUE_MAX && s->unsent <= s->outq &&
	       s->snd_wscale <= WSCALE_MAX && s->rcv_wscale <= WSCALE_MAX && s->mss <= 65535 &&
	       s->sndbuf <= INT_MAX && s->rcvbuf <= INT_MAX && s->buf_lock <= SOCK_BUF_LOCK_MASK &&
	       s->user_timeout <= INT_MAX && s->keepalive <= 1 && s->nodelay <= 1 &&
	       s->reuseaddr <= REUSE_MAX && s->peek_off <= INT_MAX;
}

static int unpack(struct repair_image *image, const Peer__Socket *s)
{
	int r = flow_unpack(&image->flow, s->flow);

	if (r || strlen(s->role) >= sizeof(image->role) || !in_range(s) ||
	    (!s->v6_socket && !addr_is_v4(image->flow.daddr)) ||
	    (s->connected && !image->flow.sport) ||
	    (image->flow.proto == IPPROTO_TCP ? s->n_datagrams > 0 :
						s->outq > 0 || s->connected != !!image->flow.sport))
		return -EPROTO;
	strcpy(image->role, s->role);
#define X(field) image->field = (typeof(image->field))s->field;
	FIELDS(X)
#undef X
#define X(field) image->window.field = s->field;
	WINDOW(X)
#undef X
	return 0;
}

uint64_t images_trailer(const Peer__Move *m)
{
	uint64_t size = 0;

	for (size_t i = 0; i < m->n_sockets; i++) {
		const Peer__Socket *s = m->sockets[i];

		if (s->flow && s->flow->protocol == IPPROTO_TCP)
			size += (uint64_t)s->inq + s->outq;
		for (size_t k = 0; k < s->n_datagrams; k++)
			size += s->datagrams[k]->size;
	}
	return size;
}

int images_unpack(struct repair_image *images, unsigned int count, const Peer__Move *m,
		  const uint8_t *trailer, uint32_t size)
{
	uint32_t left = size;
	int r = m->n_sockets == count ? 0 : -EPROTO;

	for (size_t i = 0; !r && i < m->n_sockets; i++) {
		struct repair_image *image = &images[i];

		r = unpack(image, m->sockets[i]);
		if (r || !trailer)
			continue;
		if (image->flow.proto == IPPROTO_UDP) {
			r = unpack_datagrams(image, m->sockets[i], &trailer, &left);
			continue;
		}
		r = image->mss < MSS_MIN ? -EPROTO :
					   take(&trailer, &left, image->inq, &image->recv);
		r = r ? r : take(&trailer, &left, image->outq, &image->send);
	}
	return r ? r : left ? -EPROTO : 0;
}
