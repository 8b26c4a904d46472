// SPDX-License-Identifier: BSD-2-Clause
/*
 * Templates of outer headers: built whole in the slot that is not live, then made live by one
 * store. Layout and what is filled in per packet: bpf/tunnel.h.
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <string.h>
#include <ferry/wire.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"

#define OUTER_TTL 64

static uint32_t sum16(const uint8_t *p, size_t size)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < size; i += 2)
		sum += p[i] | (uint32_t)p[i + 1] << 8; /* as the datapath loads it */
	return sum;
}

static uint8_t *put_ipv4(uint8_t *p, const struct nexthop_route *r, struct ferry_template *t)
{
	/* RFC 6864: DF set, so the identification may be 0 */
	static const uint8_t fixed[12] = { 0x45, 0, 0, 0, 0, 0, 0x40, 0, OUTER_TTL, IPPROTO_UDP };

	memcpy(p, fixed, sizeof(fixed));
	memcpy(p + 12, r->from + 12, 4);
	memcpy(p + 16, r->to + 12, 4);
	t->csum = sum16(p, 20);
	return p + 20;
}

static uint8_t *put_ipv6(uint8_t *p, const struct nexthop_route *r)
{
	static const uint8_t fixed[8] = { 0x60, 0, 0, 0, 0, 0, IPPROTO_UDP, OUTER_TTL };

	memcpy(p, fixed, sizeof(fixed));
	memcpy(p + 8, r->from, 16);
	memcpy(p + 24, r->to, 16);
	return p + 40;
}

static void template_build(struct ferry_template *t, const struct nexthop_route *r, uint32_t vni,
			   const uint8_t tag[8])
{
	bool v4 = addr_is_v4(r->to);
	struct ferry_geneve g = {
		.ver_optlen = sizeof(struct ferry_option) / 4,
		.flags = FERRY_GENEVE_CRITICAL,
		.vni = { (uint8_t)(vni >> 16), (uint8_t)(vni >> 8), (uint8_t)vni },
	};
	struct ferry_option o = {
		.class_ = htons(FERRY_GENEVE_CLASS),
		.type = FERRY_GENEVE_TYPE,
		.length = FERRY_OPTION_WORDS,
	};
	uint16_t ports[4] = { 0, htons(FERRY_GENEVE_PORT), 0, 0 }; /* checksum 0: RFC 6935 */
	uint16_t type = htons(v4 ? ETH_P_IP : ETH_P_IPV6);
	uint8_t *p = t->header;

	memset(t, 0, sizeof(*t));
	memcpy(p, r->dmac, 6);
	memcpy(p + 6, r->smac, 6);
	memcpy(p + 12, &type, 2);
	p = v4 ? put_ipv4(p + ETH_HLEN, r, t) : put_ipv6(p + ETH_HLEN, r);
	memcpy(p, ports, sizeof(ports));
	memcpy(p + 8, &g, sizeof(g));
	memcpy(o.tag, tag, sizeof(o.tag));
	memcpy(p + 16, &o, sizeof(o));
	t->ifindex = r->ifindex;
	t->mtu = r->mtu;
	t->flags = r->veth ? FERRY_TEMPLATE_REDIRECT : 0;
	t->length = (uint8_t)(ETH_HLEN + (v4 ? FERRY_OUTER4 : FERRY_OUTER6));
}

int nexthop_set(struct dataplane *d, uint32_t node, const struct nexthop_route *route, uint32_t vni,
		const uint8_t tag[8])
{
	struct ferry_nexthop *nh = &d->nexthops[node];
	struct ferry_template t;
	uint32_t live;

	if (!node || node >= FERRY_NODES || addr_is_v4(route->from) != addr_is_v4(route->to))
		return -EINVAL;
	template_build(&t, route, vni, tag);
	live = nh->live;
	if (live && !memcmp(&nh->template[live - 1], &t, sizeof(t)))
		return 0;
	if (bpf_map_update_elem(d->map[MAP_DEVICES], &route->ifindex, &route->ifindex, BPF_ANY))
		return -errno;
	live = live == 1 ? 2 : 1;
	nh->node = node;
	nh->template[live - 1] = t;
	__atomic_store_n(&nh->live, live, __ATOMIC_RELEASE);
	return 0;
}

void nexthop_clear(struct dataplane *d, uint32_t node)
{
	d->nexthops[node].node = node; /* known, though not resolved */
	__atomic_store_n(&d->nexthops[node].live, 0, __ATOMIC_RELEASE);
}

uint32_t nexthop_room(const struct dataplane *d, uint32_t node)
{
	const struct ferry_nexthop *nh = &d->nexthops[node];
	uint32_t live = __atomic_load_n(&nh->live, __ATOMIC_ACQUIRE);
	const struct ferry_template *t;

	if (node >= FERRY_NODES || !live)
		return 0;
	t = &nh->template[live - 1];
	return t->mtu + ETH_HLEN > t->length ? t->mtu + ETH_HLEN - t->length : 0;
}
