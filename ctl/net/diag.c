// SPDX-License-Identifier: BSD-2-Clause
/* One exact lookup a call, on a socket of its own; see diag.h. */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/time.h>
#include "base/util.h"
#include "net/diag.h"

#define TCP_LISTEN 10

struct question {
	const struct ferry_flow *flow;
	int found;
};

static bool same(const uint32_t *have, const uint8_t *want, bool v4)
{
	return !memcmp(have, v4 ? want + 12 : want, v4 ? 4 : 16);
}

/* Where nothing matches, the kernel answers with the listener, or a UDP socket on any address. */
static int on_socket(const struct nlmsghdr *h, void *arg)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	struct question *q = arg;
	const struct ferry_flow *f = q->flow;
	bool v4 = m->idiag_family == AF_INET; /* a v6 socket's tuple may be v4-mapped */

	q->found = m->idiag_state != TCP_LISTEN && m->id.idiag_sport == f->dport &&
		   m->id.idiag_dport == f->sport && same(m->id.idiag_src, f->daddr, v4) &&
		   (!f->sport || same(m->id.idiag_dst, f->saddr, v4));
	return MNL_CB_STOP;
}

static void put_addr(uint32_t to[4], const uint8_t addr[16])
{
	bool v4 = addr_is_v4(addr);

	memcpy(to, v4 ? addr + 12 : addr, v4 ? 4 : 16);
}

static void put_request(struct nlmsghdr *h, const struct ferry_flow *f)
{
	struct inet_diag_req_v2 *q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	/* net/ipv4/udp_diag.c: "src and dst are swapped for historical reasons" */
	bool udp = f->proto == IPPROTO_UDP;

	q->sdiag_family = addr_is_v4(f->daddr) ? AF_INET : AF_INET6;
	q->sdiag_protocol = f->proto;
	q->idiag_states = ~0U;
	q->id.idiag_sport = udp ? f->sport : f->dport;
	q->id.idiag_dport = udp ? f->dport : f->sport;
	put_addr(q->id.idiag_src, udp ? f->saddr : f->daddr);
	put_addr(q->id.idiag_dst, udp ? f->daddr : f->saddr);
	q->id.idiag_cookie[0] = q->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

int diag_has_socket(const struct ferry_flow *flow)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct timeval wait = { .tv_sec = 2 };
	char buf[8192] = {};
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct question q = { .flow = flow };
	ssize_t n;

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	h->nlmsg_flags = NLM_F_REQUEST;
	put_request(h, flow);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) ||
	    send(fd, h, h->nlmsg_len, 0) < 0)
		return -errno;
	n = recv(fd, buf, sizeof(buf), 0);
	if (n < 0)
		return -errno;
	if (mnl_cb_run(buf, (size_t)n, 0, 0, on_socket, &q) < 0)
		return errno == ENOENT ? 0 : -errno;
	return q.found;
}
