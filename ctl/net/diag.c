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

/* 1, 0 or -errno: -ENOENT both where there is none and where nobody in the kernel knows. */
static int look_up(int fd, const struct ferry_flow *flow)
{
	_cleanup_close_ int own =
		fd >= 0 ? -1 : socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	char request[512] = {}, buf[8192];
	struct nlmsghdr *h = mnl_nlmsg_put_header(request);
	struct question q = { .flow = flow, .found = -EPROTO }; /* no answer is no "no" */
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
	return mnl_cb_run(buf, (size_t)n, sequence, 0, on_socket, &q) < 0 ? -errno : q.found;
}

bool diag_answers(uint8_t proto)
{
	static bool known[256];
	int type = proto == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM;
	_cleanup_close_ int fd = known[proto] ? -1 : socket(AF_INET, type | SOCK_CLOEXEC, proto);
	struct ferry_flow f = { .proto = proto };
	struct sockaddr_storage ss;
	socklen_t size = sizeof(struct sockaddr_in);

	if (known[proto])
		return true;
	memset(f.saddr + 10, 0xff, 2);
	addr_to_sockaddr(f.saddr, 0, false, &ss); /* any address, a port that is free */
	if (fd < 0 || bind(fd, (struct sockaddr *)&ss, size) ||
	    (type == SOCK_STREAM && listen(fd, 1)) ||
	    getsockname(fd, (struct sockaddr *)&ss, &size) ||
	    addr_from_sockaddr(&ss, f.daddr, &f.dport))
		return false;
	known[proto] = look_up(-1, &f) >= 0;
	return known[proto];
}

int diag_has_socket(int fd, const struct ferry_flow *flow)
{
	int r = look_up(fd, flow);

	/* Met while it becomes a timewait socket it is missed: its last reference goes, and the
	 * kernel does not look again, but at listeners (net/ipv4/inet_hashtables.c). That happens
	 * to a socket once. */
	if (r == 0 || r == -ENOENT)
		r = look_up(fd, flow);
	return r != -ENOENT ? r : diag_answers(flow->proto) ? 0 : -EOPNOTSUPP;
}
