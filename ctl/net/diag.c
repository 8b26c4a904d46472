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

static int on_socket(const struct nlmsghdr *h, void *arg)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);

	/* where no connection matches, the kernel answers with the listener */
	*(int *)arg = m->idiag_state == TCP_LISTEN ? 0 : m->idiag_state;
	return MNL_CB_STOP;
}

static void put_request(struct nlmsghdr *h, const struct ferry_flow *f)
{
	struct inet_diag_req_v2 *q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	bool v4 = addr_is_v4(f->daddr);

	q->sdiag_family = v4 ? AF_INET : AF_INET6;
	q->sdiag_protocol = IPPROTO_TCP;
	q->idiag_states = ~0U;
	q->id.idiag_sport = f->dport;
	q->id.idiag_dport = f->sport;
	memcpy(q->id.idiag_src, v4 ? f->daddr + 12 : f->daddr, v4 ? 4 : 16);
	memcpy(q->id.idiag_dst, v4 ? f->saddr + 12 : f->saddr, v4 ? 4 : 16);
	q->id.idiag_cookie[0] = q->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

int diag_tcp_state(const struct ferry_flow *flow)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct timeval wait = { .tv_sec = 2 };
	char buf[8192] = {};
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	int state = 0;
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
	if (mnl_cb_run(buf, (size_t)n, 0, 0, on_socket, &state) < 0)
		return errno == ENOENT ? 0 : -errno;
	return state;
}
