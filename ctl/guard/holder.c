// SPDX-License-Identifier: BSD-2-Clause
/*
 * A holder: a socket that is the server's listener in all that matters to the kernel and to the
 * connections that it makes, which inherit its options. See guard.h.
 */
#include <errno.h>
#include <linux/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include "guard/guard.h"

/* What a connection inherits from its listener, and what decides whether it can be bound. Those with a
 * name matter to who accepts it: it would not behave as its application wants, and cannot be made to. */
static const struct {
	int level, name;
	bool v6;
	const char *matters;
} inherited[] = {
	{ SOL_SOCKET, SO_KEEPALIVE, false, NULL },
	{ SOL_SOCKET, SO_LINGER, false, "SO_LINGER" },
	{ SOL_SOCKET, SO_OOBINLINE, false, "SO_OOBINLINE" },
	{ SOL_SOCKET, SO_RCVLOWAT, false, "SO_RCVLOWAT" },
	{ SOL_SOCKET, SO_RCVTIMEO, false, NULL },
	{ SOL_SOCKET, SO_SNDTIMEO, false, NULL },
	{ SOL_SOCKET, SO_PRIORITY, false, NULL },
	{ SOL_SOCKET, SO_MARK, false, "SO_MARK" },
	{ SOL_SOCKET, SO_BINDTODEVICE, false, NULL },
	{ SOL_SOCKET, SO_REUSEADDR, false, NULL },
	{ IPPROTO_TCP, TCP_NODELAY, false, NULL },
	{ IPPROTO_TCP, TCP_KEEPIDLE, false, NULL },
	{ IPPROTO_TCP, TCP_KEEPINTVL, false, NULL },
	{ IPPROTO_TCP, TCP_KEEPCNT, false, NULL },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, false, NULL },
	{ IPPROTO_TCP, TCP_CONGESTION, false, NULL },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, false, NULL },
	{ IPPROTO_TCP, TCP_MAXSEG, false, NULL },
	{ IPPROTO_TCP, TCP_SAVE_SYN, false, "TCP_SAVE_SYN" },
	{ IPPROTO_IP, IP_TOS, false, NULL },
	{ IPPROTO_IP, IP_TTL, false, NULL },
	{ IPPROTO_IP, IP_FREEBIND, false, NULL },
	{ IPPROTO_IP, IP_TRANSPARENT, false, "IP_TRANSPARENT" },
	{ IPPROTO_IPV6, IPV6_V6ONLY, true, NULL },
	{ IPPROTO_IPV6, IPV6_TCLASS, true, NULL },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, true, NULL },
	{ IPPROTO_IPV6, IPV6_FREEBIND, true, NULL },
	{ IPPROTO_IPV6, IPV6_TRANSPARENT, true, "IPV6_TRANSPARENT" },
};

/* Sizes that the server has set itself; others grow with use. */
static void copy_buffers(int from, int to)
{
	static const int names[] = { SO_RCVBUF, SO_SNDBUF };
	static const int locks[] = { SOCK_RCVBUF_LOCK, SOCK_SNDBUF_LOCK };
	int locked = 0, value;
	socklen_t size = sizeof(locked);

	if (getsockopt(from, SOL_SOCKET, SO_BUF_LOCK, &locked, &size))
		return;
	for (int i = 0; i < 2; i++) {
		size = sizeof(value);
		if (!(locked & locks[i]) || getsockopt(from, SOL_SOCKET, names[i], &value, &size))
			continue;
		value /= 2; /* what is read is twice what was set */
		setsockopt(to, SOL_SOCKET, names[i] == SO_RCVBUF ? SO_RCVBUFFORCE : SO_SNDBUFFORCE,
			   &value, sizeof(value));
	}
}

struct value {
	char octets[64];
	socklen_t size;
};

static bool get(int fd, unsigned int i, struct value *v)
{
	v->size = sizeof(v->octets);
	return !getsockopt(fd, inherited[i].level, inherited[i].name, v->octets, &v->size);
}

static bool same(const struct value *a, const struct value *b)
{
	return a->size == b->size && !memcmp(a->octets, b->octets, a->size);
}

static void copy_options(int from, int to, bool v6)
{
	struct value value, there;

	for (unsigned int i = 0; i < ARRAY_SIZE(inherited); i++) {
		if ((inherited[i].v6 && !v6) || !get(from, i, &value) ||
		    (get(to, i, &there) && same(&value, &there)))
			continue;
		setsockopt(to, inherited[i].level, inherited[i].name, value.octets, value.size);
	}
	copy_buffers(from, to);
}

bool holder_differs(int listener, int holder, char words[WORDS])
{
	size_t n = 0;

	words[0] = 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(inherited) && n < WORDS; i++) {
		struct value one, other;

		if (!inherited[i].matters || !get(listener, i, &one) || !get(holder, i, &other) ||
		    same(&one, &other))
			continue;
		n += (size_t)snprintf(words + n, WORDS - n, "%s%s", n ? ", " : "",
				      inherited[i].matters);
	}
	return n;
}

int holder_open(int own_netns, int netns, const struct listener *l, char words[WORDS])
{
	_cleanup_close_ int fd =
		netns_socket(own_netns, netns, l->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int one = 1;
	char text[LISTENER_TEXT];

	if (fd < 0) {
		snprintf(words, WORDS, "no socket in the server's network namespace: %s",
			 strerror(-fd));
		return TAKE_FD(fd);
	}
	copy_options(l->fd, fd, l->addr.ss_family == AF_INET6);
	/* a group is of one user; who that is is asked at bind() */
	if (fchown(fd, l->uid, (gid_t)-1) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
	    bind(fd, (const struct sockaddr *)&l->addr, l->size)) {
		int r = -errno;

		snprintf(words, WORDS, "no holder can be bound to %s beside %s (pid %d): %s%s",
			 listener_text(l, text), l->comm, l->pid, strerror(-r),
			 r == -EADDRINUSE ? ": it has connections, and no SO_REUSEADDR. Start it by "
					    "'ferry guard --port N -- COMMAND'" :
					    "");
		return r;
	}
	return TAKE_FD(fd);
}
