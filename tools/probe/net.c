// SPDX-License-Identifier: BSD-2-Clause
/*
 * The epoll loop, sockets and times of the probes; net.h is the contract.
 *
 * Level-triggered, one thread. Waits are rounded up to the next millisecond, so that a due time
 * is never busy-waited for.
 *
 * Invariant: no descriptor made here blocks or survives an exec.
 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_A_ROUND 256
#define BACKLOG 4096

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

void raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

int loop_open(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int loop_watch(int loop, struct source *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };
	int op = !events ? EPOLL_CTL_DEL : s->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (s->events == events || s->fd < 0)
		return 0;
	if (epoll_ctl(loop, op, s->fd, &e))
		return -errno;
	s->events = events;
	return 0;
}

int loop_wait(int loop, uint64_t until)
{
	struct epoll_event events[EVENTS_A_ROUND];
	uint64_t now = now_ns();
	int timeout = -1, n;

	if (until <= now)
		timeout = 0;
	else if (until - now < 3600 * NSEC_PER_SEC)
		timeout = (int)((until - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
	n = epoll_wait(loop, events, EVENTS_A_ROUND, timeout);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct source *s = events[i].data.ptr;

		/* An earlier one of this round may have closed it or stopped its watch. */
		if (s->fd >= 0 && s->events)
			s->ready(s, events[i].events);
	}
	return 0;
}

void source_close(int loop, struct source *s)
{
	if (s->fd < 0)
		return;
	/* By hand: a duplicate elsewhere (the agent's) would keep a closed one in the set. */
	loop_watch(loop, s, 0);
	close(s->fd);
	s->fd = -1;
	s->events = 0;
}

int address_parse(union address *a, const char *text, uint16_t port)
{
	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, text, &a->in.sin_addr) == 1)
		a->in.sin_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &a->in6.sin6_addr) == 1)
		a->in6.sin6_family = AF_INET6;
	else
		return -EINVAL;
	address_set_port(a, port);
	return 0;
}

void address_set_port(union address *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_port = htons(port);
	else
		a->in.sin_port = htons(port);
}

socklen_t address_size(const union address *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

const char *address_text(const union address *a, char out[ADDRESS_TEXT])
{
	char host[INET6_ADDRSTRLEN];

	if (a->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
		snprintf(out, ADDRESS_TEXT, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
		snprintf(out, ADDRESS_TEXT, "%s:%u", host, ntohs(a->in.sin_port));
	}
	return out;
}

int set_int(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

static int open_bound(const union address *a, int type, int reuse)
{
	int fd = socket(a->sa.sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (a->sa.sa_family == AF_INET6)
		set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (reuse)
		set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!bind(fd, &a->sa, address_size(a)) && (type != SOCK_STREAM || !listen(fd, BACKLOG)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int tcp_listen(const union address *a)
{
	return open_bound(a, SOCK_STREAM, 1);
}

int udp_bind(const union address *a, int reuse)
{
	return open_bound(a, SOCK_DGRAM, reuse);
}

int pause_parse(struct pause *p, const char *text)
{
	unsigned int length, every;
	char rest;

	if (sscanf(text, "%u/%u%c", &length, &every, &rest) != 2 || length >= every)
		return -EINVAL;
	p->length = length * NSEC_PER_MSEC;
	p->every = every * NSEC_PER_MSEC;
	return 0;
}

int pause_is_on(const struct pause *p, uint64_t now)
{
	return p->every && now % p->every < p->length;
}

uint64_t pause_edge(const struct pause *p, uint64_t now)
{
	if (!p->every || !p->length)
		return NEVER;
	return now - now % p->every + (pause_is_on(p, now) ? p->length : p->every);
}

int number_parse(uint64_t *out, const char *text, uint64_t max)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return *end || errno || *out > max ? -EINVAL : 0;
}
