// SPDX-License-Identifier: BSD-2-Clause
/*
 * Can this socket move? The kernel lets TCP_REPAIR be set in states that it cannot restore, so
 * that the question is asked here, before anything is touched. It changes nothing.
 */
#include <string.h>
#include <sys/socket.h>
#include "base/util.h"
#include "repair/repair.h"
#include "repair/sockopt.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int refuse(const char **refusal, const char *id)
{
	*refusal = id;
	return -EINVAL;
}

/* Addresses as the receiver of packets for this socket sees them. */
static int identify(int fd, struct repair_image *image, const char **refusal)
{
	struct sockaddr_storage local, remote;
	socklen_t size = sizeof(local);
	uint8_t zero[16] = {};
	struct ferry_flow *f = &image->flow;

	if (getsockname(fd, (struct sockaddr *)&local, &size) ||
	    addr_from_sockaddr(&local, f->daddr, &f->dport))
		return refuse(refusal, "not-inet");
	if (!f->dport || !memcmp(f->daddr, zero, 16) ||
	    (addr_is_v4(f->daddr) && !memcmp(f->daddr + 12, zero, 4)))
		return refuse(refusal, f->proto == IPPROTO_TCP ? "not-connected" : "addr-wildcard");
	if (f->daddr[0] == 0xfe && (f->daddr[1] & 0xc0) == 0x80)
		return refuse(refusal, "addr-link-local");
	size = sizeof(remote);
	image->connected = !getpeername(fd, (struct sockaddr *)&remote, &size);
	if (image->connected)
		return addr_from_sockaddr(&remote, f->saddr, &f->sport);
	if (f->proto == IPPROTO_TCP)
		return refuse(refusal, "not-connected");
	if (addr_is_v4(f->daddr))
		memset(f->saddr + 10, 0xff, 2);
	return 0;
}

static int check_tcp(int fd, const char **refusal)
{
	struct tcp_info info = {};
	socklen_t size = sizeof(info);
	int listening = 0;
	char ulp[16] = "";

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		return refuse(refusal, "not-tcp");
	size = sizeof(listening);
	if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) && listening)
		return refuse(refusal, "listen");
	if (info.tcpi_state == 7 /* TCP_CLOSE */)
		return refuse(refusal, "not-connected");
	if (info.tcpi_state != 1 /* TCP_ESTABLISHED */)
		return refuse(refusal, "tcp-state");
	size = sizeof(ulp);
	if (!getsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, &size) && ulp[0])
		return refuse(refusal, "ulp");
	return 0;
}

static int get_int(int fd, int level, int name)
{
	socklen_t size = sizeof(int);
	int value = -1;

	return getsockopt(fd, level, name, &value, &size) ? -1 : value;
}

bool repair_is_empty(int fd, const struct repair_image *image)
{
	bool tcp = image->flow.proto == IPPROTO_TCP;
	struct sockaddr_storage ss;
	socklen_t size = sizeof(ss);
	struct tcp_info info = {};
	uint8_t addr[16];
	uint16_t port = 0;

	if (get_int(fd, SOL_SOCKET, SO_DOMAIN) != (image->v6_socket ? AF_INET6 : AF_INET) ||
	    get_int(fd, SOL_SOCKET, SO_PROTOCOL) != image->flow.proto ||
	    get_int(fd, SOL_SOCKET, SO_TYPE) != (tcp ? SOCK_STREAM : SOCK_DGRAM))
		return false;
	if (getsockname(fd, (struct sockaddr *)&ss, &size) ||
	    addr_from_sockaddr(&ss, addr, &port) || port)
		return false;
	size = sizeof(info);
	return !tcp || (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
			info.tcpi_state == 7 /* TCP_CLOSE */);
}

/* Family and protocol into image. */
static int classify(int fd, struct repair_image *image, const char **refusal)
{
	int domain = 0, protocol = 0;
	socklen_t size = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) ||
	    (domain != AF_INET && domain != AF_INET6))
		return refuse(refusal, "not-inet");
	size = sizeof(protocol);
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size))
		return refuse(refusal, "not-inet");
	if (protocol == IPPROTO_MPTCP)
		return refuse(refusal, "mptcp");
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return refuse(refusal, "not-tcp");
	image->flow = (struct ferry_flow){ .proto = (uint8_t)protocol };
	image->v6_socket = domain == AF_INET6;
	return 0;
}

int repair_check(int fd, struct repair_image *image, const char **refusal)
{
	int r = classify(fd, image, refusal);

	if (!r && image->flow.proto == IPPROTO_TCP)
		r = check_tcp(fd, refusal);
	return r ? r : identify(fd, image, refusal);
}

int repair_identify(int fd, struct repair_image *image)
{
	const char *unused;
	int r;

	memset(image, 0, sizeof(*image));
	r = classify(fd, image, &unused);
	return r ? r : identify(fd, image, &unused);
}

bool repair_is_tcp(int fd)
{
	return get_int(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

bool repair_is_frozen(int fd)
{
	return !repair_is_tcp(fd) || get_int(fd, IPPROTO_TCP, TCP_REPAIR) == 1;
}
