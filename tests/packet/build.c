// SPDX-License-Identifier: BSD-2-Clause
/*
 * The packet tests' own encoder: Ethernet, IPv4 (RFC 791), IPv6 (RFC 8200), TCP, UDP, ICMP errors
 * (RFC 792, 4443), GENEVE (RFC 8926) with ferry's option (docs/DESIGN.md section 3.4).
 */
#include <string.h>
#include "build.h"

void put(struct buf *o, const void *data, size_t n)
{
	if (n)
		memcpy(o->b + o->n, data, n);
	o->n += n;
}

void put8(struct buf *o, uint8_t v)
{
	o->b[o->n++] = v;
}

void put16(struct buf *o, uint16_t v)
{
	put8(o, v >> 8);
	put8(o, v);
}

void put32(struct buf *o, uint32_t v)
{
	put16(o, v >> 16);
	put16(o, v);
}

static void poke16(uint8_t *at, uint16_t v)
{
	at[0] = v >> 8;
	at[1] = v;
}

static uint32_t add(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += i & 1 ? p[i] : p[i] << 8;
	return sum;
}

uint16_t checksum(const void *data, size_t n, uint32_t sum)
{
	sum = add(data, n, sum);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static void v4_mapped(uint8_t out[16], uint32_t addr)
{
	memset(out, 0, 10);
	out[10] = out[11] = 0xff;
	for (int i = 0; i < 4; i++)
		out[12 + i] = addr >> (24 - 8 * i);
}

static void v6_of(uint8_t out[16], uint16_t third, uint16_t fourth, uint8_t last)
{
	memset(out, 0, 16);
	out[0] = 0x20, out[1] = 0x01, out[2] = 0x0d, out[3] = 0xb8;
	poke16(out + 4, third);
	poke16(out + 6, fourth);
	out[15] = last;
}

void addr_client(uint8_t out[16], bool v6)
{
	if (v6)
		v6_of(out, 0, 0, 7);
	else
		v4_mapped(out, 0xc6336407);
}

void addr_service(uint8_t out[16], bool v6)
{
	if (v6)
		v6_of(out, 0, 1, 0x10);
	else
		v4_mapped(out, 0xcb00710a);
}

void addr_node(uint8_t out[16], bool v6, uint8_t node)
{
	if (v6)
		v6_of(out, 0xffff, 0, node);
	else
		v4_mapped(out, 0xc0000200 | node);
}

/* Appends an IP header; its checksum needs the final length, so that comes first. */
static void put_ip(struct buf *o, bool v6, const uint8_t src[16], const uint8_t dst[16],
		   uint8_t proto, uint8_t ttl, uint8_t tos, uint16_t id, uint16_t frag, size_t l4)
{
	size_t at = o->n;

	if (v6) {
		put32(o, 6U << 28 | (uint32_t)tos << 20);
		put16(o, l4);
		put8(o, proto);
		put8(o, ttl);
		put(o, src, 16);
		put(o, dst, 16);
		return;
	}
	put8(o, 0x45);
	put8(o, tos);
	put16(o, 20 + l4);
	put16(o, id);
	put16(o, frag);
	put8(o, ttl);
	put8(o, proto);
	put16(o, 0);
	put(o, src + 12, 4);
	put(o, dst + 12, 4);
	poke16(o->b + at + 10, checksum(o->b + at, 20, 0));
}

static uint32_t pseudo(bool v6, const uint8_t *src, const uint8_t *dst, uint8_t proto, size_t l4)
{
	uint32_t sum = proto + l4;

	sum = add(v6 ? src : src + 12, v6 ? 16 : 4, sum);
	return add(v6 ? dst : dst + 12, v6 ? 16 : 4, sum);
}

static size_t l4_min(uint8_t proto)
{
	return proto == 6 ? 20 : 8;
}

static void put_l4(struct buf *o, bool v6, const uint8_t *src, const uint8_t *dst, uint8_t proto,
		   bool reply, size_t l4)
{
	size_t at = o->n;

	put16(o, reply ? SERVICE_PORT : CLIENT_PORT);
	put16(o, reply ? CLIENT_PORT : SERVICE_PORT);
	if (proto == 6) {
		put32(o, 1000);
		put32(o, 2000);
		put32(o, 0x50102000); /* doff 5, ACK, window 8192 */
		put32(o, 0);
	} else {
		put16(o, l4);
		put16(o, 0);
	}
	for (size_t i = l4_min(proto); i < l4; i++)
		put8(o, 0x41 + i % 23);
	poke16(o->b + at + (proto == 6 ? 16 : 6),
	       checksum(o->b + at, l4, pseudo(v6, src, dst, proto, l4)));
}

/* Frag needed (RFC 1191) or Packet Too Big: 8 octets of header, then what it quotes. */
static void put_icmp(struct buf *o, const struct inner *i, const uint8_t *src, const uint8_t *dst,
		     size_t quoted_l4)
{
	uint8_t service[16], client[16];
	size_t at = o->n;
	struct buf whole = { 0 };

	addr_service(service, i->v6);
	addr_client(client, i->v6);
	put8(o, i->v6 ? 2 : 3);
	put8(o, i->v6 ? 0 : 4);
	put16(o, 0);
	put32(o, 1280);
	put_ip(o, i->v6, i->reply ? client : service, i->reply ? service : client, i->proto, 60,
	       0, 7, 0x4000, 1200);
	put_l4(&whole, i->v6, service, client, i->proto, !i->reply, 1200);
	put(o, whole.b, quoted_l4);
	poke16(o->b + at + 2,
	       checksum(o->b + at, o->n - at, i->v6 ? pseudo(true, src, dst, 58, o->n - at) : 0));
}

void build_inner(struct buf *o, const struct inner *i)
{
	uint8_t src[16], dst[16];
	size_t header = i->v6 ? 40 : 20, l4 = i->length ? i->length - header : l4_min(i->proto) + 5;

	addr_client(i->reply ? dst : src, i->v6);
	addr_service(i->reply ? src : dst, i->v6);
	if (i->icmp) {
		if (!i->length)
			l4 = 8 + header + 8; /* RFC 792's minimum */
		if (!i->reply)
			addr_node(src, i->v6, 254);
		put_ip(o, i->v6, src, dst, i->v6 ? 58 : 1, i->ttl, i->tos, 11, 0, l4);
		put_icmp(o, i, src, dst, l4 - 8 - header);
		return;
	}
	put_ip(o, i->v6, src, dst, i->proto, i->ttl, i->tos, 3, 0x4000, l4);
	put_l4(o, i->v6, src, dst, i->proto, i->reply, l4);
}

void build_outer(struct buf *o, const struct outer *t, bool inner_v6, const void *inner, size_t n)
{
	uint8_t src[16], dst[16];

	addr_node(src, t->v6, t->from);
	addr_node(dst, t->v6, t->to);
	put_ip(o, t->v6, src, dst, 17, 64, t->tos, 0, 0x4000, 36 + n);
	put16(o, t->sport);
	put16(o, 6081);
	put16(o, 36 + n);
	put16(o, 0); /* no checksum: RFC 8926 section 3.3, RFC 6935 */
	put8(o, 5); /* version 0, 5 words of options */
	put8(o, 0x40); /* critical options present */
	put16(o, inner_v6 ? 0x86dd : 0x0800);
	put(o, "\x00\xfe\x44\x00", 4); /* VNI */
	put16(o, 0xff44);
	put8(o, 0x81);
	put8(o, 4); /* words of data */
	put32(o, t->epoch);
	put8(o, t->hops);
	put8(o, 0); /* flags */
	put16(o, 0); /* no second-chance node */
	put(o, t->tag, 8);
	put(o, inner, n);
}

void eth_in(struct buf *o, bool v6)
{
	put(o, "\x02\0\0\0\0\x02\x02\0\0\0\0\x01", 12);
	put16(o, v6 ? 0x86dd : 0x0800);
}

void eth_out(struct buf *o, bool v6, uint8_t node)
{
	put(o, "\x02\0\0\0\x0b", 5);
	put8(o, node);
	put(o, "\x02\0\0\0\x0a\x01", 6);
	put16(o, v6 ? 0x86dd : 0x0800);
}
