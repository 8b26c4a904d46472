// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who listens on a port, and what is queued, by sock_diag. A duplicate of a server's listener would
 * tell as much, and keep it from being closed. See guard.h.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include "guard/guard.h"

#define TCP_LISTEN 10

int queues_open(int own, int netns)
{
	return netns_socket(own, netns, AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
}

struct reading {
	void (*found)(const struct queue *q, void *data);
	void *data;
};

static int on_socket(const struct nlmsghdr *h, void *arg)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	const struct reading *r = arg;
	const struct queue q = {
		.cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0],
		.queued = m->idiag_rqueue,
		.backlog = m->idiag_wqueue,
		.uid = m->idiag_uid,
	};

	if (m->idiag_state == TCP_LISTEN)
		r->found(&q, r->data);
	return MNL_CB_OK;
}

static int read_family(int fd, uint8_t family, uint32_t port, struct reading *r)
{
	static uint32_t sequence;
	char request[256] = {}, buf[MNL_SOCKET_BUFFER_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(request);
	struct inet_diag_req_v2 *q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	int go_on = MNL_CB_OK;

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = ++sequence;
	q->sdiag_family = family;
	q->sdiag_protocol = IPPROTO_TCP;
	q->idiag_states = 1U << TCP_LISTEN;
	q->id.idiag_sport = htons((uint16_t)port);
	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		; /* of a dump that broke off */
	if (send(fd, h, h->nlmsg_len, 0) < 0)
		return -errno;
	while (go_on > MNL_CB_STOP) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n < 0)
			return -errno;
		go_on = mnl_cb_run(buf, (size_t)n, h->nlmsg_seq, 0, on_socket, r);
	}
	return go_on < 0 ? -errno : 0;
}

int queues_read(int fd, uint32_t port, void (*found)(const struct queue *q, void *data), void *data)
{
	struct reading r = { found, data };
	int one = read_family(fd, AF_INET, port, &r), other = read_family(fd, AF_INET6, port, &r);

	return one ? one : other;
}
