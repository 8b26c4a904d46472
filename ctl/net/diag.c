// SPDX-License-Identifier: BSD-2-Clause
/* One exact lookup a call; see diag.h. */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include "base/util.h"
#include "net/diag.h"

#define TCP_LISTEN 10
#define UNREAD_MAX 64

static uint32_t sequence;

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

/* The kernel answers before send() returns (net/netlink/af_netlink.c, netlink_unicast_kernel), so
 * that nobody who shares a lent socket can make us wait. What is unread in it is no answer of
 * ours. */
static ssize_t ask(int fd, const struct nlmsghdr *h, char *buf, size_t size)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	ssize_t n;

	for (int i = 0; i < UNREAD_MAX && recv(fd, buf, size, MSG_DONTWAIT) > 0; i++)
		;
	if (sendto(fd, h, h->nlmsg_len, MSG_DONTWAIT, (const struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	n = recv(fd, buf, size, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

int diag_has_socket(int fd, const struct ferry_flow *flow)
{
	_cleanup_close_ int own =
		fd >= 0 ? -1 : socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	char request[512] = {}, buf[8192];
	struct nlmsghdr *h = mnl_nlmsg_put_header(request);
	struct question q = { .flow = flow };
	ssize_t n;

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	h->nlmsg_flags = NLM_F_REQUEST;
	h->nlmsg_seq = ++sequence;
	put_request(h, flow);
	if (fd < 0 && own < 0)
		return -errno;
	n = ask(fd < 0 ? own : fd, h, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	if (mnl_cb_run(buf, (size_t)n, sequence, 0, on_socket, &q) < 0)
		return errno == ENOENT ? 0 : -errno;
	return q.found;
}
