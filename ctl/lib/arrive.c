// SPDX-License-Identifier: BSD-2-Clause
/*
 * The destination's half of libferry: empty sockets and a memfd are lent; on GO the bundle in the
 * memfd says what the unit brings. What was unsent at the origin is written first, once, before
 * anything of the application's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "lib.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define UNSENT_TIMEOUT_MS 1000

static int make_sockets(struct ferry_unit *u, const struct ferry_app_message *m)
{
	for (unsigned int i = 0; i < u->count; i++) {
		const struct ferry_app_socket *s = &m->sockets[i];

		u->fds[i] = socket(s->family, s->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (u->fds[i] < 0)
			return -errno;
		memcpy(u->roles[i], s->role, sizeof(u->roles[i]));
		u->roles[i][sizeof(u->roles[i]) - 1] = 0;
	}
	u->bundle = memfd_create("ferry-bundle", MFD_CLOEXEC);
	return u->bundle < 0 ? -errno : 0;
}

/* A failure is answered with LENT of nothing: the agent refuses the move, and says why. */
void lib_lend(struct ferry *f, const struct ferry_app_message *m)
{
	struct ferry_app_message answer = {
		.type = FERRY_APP_BUNDLE,
		.version = FERRY_APP_VERSION,
		.id = m->id,
	};
	struct ferry_unit *u = m->count ? lib_unit_new(f, m->count) : NULL;
	int r = u ? 0 : -ENOMEM;

	for (unsigned int i = 0; u && i < u->count; i++)
		u->fds[i] = -1;
	if (u) {
		u->state = UNIT_LENT;
		u->request = m->id;
		memcpy(u->uuid, m->uuid, sizeof(u->uuid));
		answer.handle = u->handle;
		r = make_sockets(u, m);
	}
	if (!r)
		r = lib_send(f, &answer, sizeof(answer), &u->bundle, 1);
	answer.type = FERRY_APP_LENT;
	answer.result = r;
	answer.count = r ? 0 : u->count;
	if (lib_send(f, &answer, sizeof(answer), r ? NULL : u->fds, answer.count))
		r = -EIO; /* it ends the move when nothing comes */
	if (r && u)
		lib_discard(u);
}

static void close_fds(struct ferry_unit *u)
{
	for (unsigned int i = 0; i < u->count; i++)
		if (u->fds[i] >= 0)
			close(u->fds[i]);
}

void lib_discard(struct ferry_unit *u)
{
	close_fds(u);
	lib_unit_free(u);
}

/* Ends the connection by RST: what comes after octets that are missing must never be sent. */
static void reset(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	connect(fd, &none, sizeof(none));
}

/* The agent made room for all of it; a wait is for a kernel that counts otherwise. */
static void write_unsent(int fd, const uint8_t *data, uint32_t size)
{
	for (uint32_t done = 0; done < size;) {
		ssize_t n = send(fd, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
		struct pollfd p = { fd, POLLOUT, 0 };

		if (n > 0)
			done += (uint32_t)n;
		else if (errno != EAGAIN || poll(&p, 1, UNSENT_TIMEOUT_MS) != 1) {
			reset(fd); /* which its owner is about to see */
			return;
		}
	}
}

static void unpack(struct ferry_unit *u, const struct ferry_bundle *b)
{
	const struct ferry_bundle_socket *s = (const void *)(b + 1);

	for (unsigned int i = 0; i < u->count; i++) {
		memcpy(u->roles[i], s[i].role, sizeof(u->roles[i]) - 1);
		u->next_datagram[i] = s[i].datagrams_at;
		u->datagrams[i] = s[i].datagrams;
		if (!s[i].unsent)
			continue;
		write_unsent(u->fds[i], u->map + s[i].unsent_at, s[i].unsent);
		setsockopt(u->fds[i], SOL_SOCKET, SO_BUF_LOCK, &s[i].buf_lock,
			   sizeof(s[i].buf_lock));
	}
}

static bool inside(const struct ferry_unit *u, uint64_t at, uint64_t size)
{
	return at <= u->map_size && size <= u->map_size - at;
}

/* Whether the bundle is whole; datagrams are looked at as they are taken. */
static bool whole(const struct ferry_unit *u)
{
	const struct ferry_bundle *b = (const void *)u->map;
	const struct ferry_bundle_socket *s = (const void *)(b + 1);

	if (!inside(u, sizeof(*b), u->count * sizeof(*s)) || b->magic != FERRY_BUNDLE_MAGIC ||
	    b->count != u->count || !inside(u, b->state_at, b->state_size))
		return false;
	for (unsigned int i = 0; i < u->count; i++)
		if (!inside(u, s[i].unsent_at, s[i].unsent))
			return false;
	return true;
}

static bool open_bundle(struct ferry_unit *u)
{
	off_t size = lseek(u->bundle, 0, SEEK_END);
	void *map;

	u->next_datagram = calloc(u->count, sizeof(*u->next_datagram));
	u->datagrams = calloc(u->count, sizeof(*u->datagrams));
	if (size <= 0 || !u->next_datagram || !u->datagrams)
		return false;
	map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, u->bundle, 0);
	if (map == MAP_FAILED)
		return false;
	u->map = map;
	u->map_size = (size_t)size;
	return whole(u);
}

static void close_bundle(struct ferry_unit *u)
{
	if (u->map)
		munmap((void *)u->map, u->map_size);
	u->map = NULL;
	free(u->next_datagram);
	free(u->datagrams);
	u->next_datagram = NULL;
	u->datagrams = NULL;
	close(u->bundle);
	u->bundle = -1;
}

void lib_arrive(struct ferry_unit *u, const uint8_t uuid[16])
{
	bool good = open_bundle(u);

	memcpy(u->uuid, uuid, sizeof(u->uuid));
	u->state = UNIT_OURS;
	if (good) {
		unpack(u, (const void *)u->map);
		u->ferry->ops->arrived(u, u->ferry->arg);
	} else {
		for (unsigned int i = 0; i < u->count; i++)
			reset(u->fds[i]);
		close_fds(u);
		ferry_withdraw(u);
	}
	close_bundle(u);
}

const void *ferry_unit_state(const struct ferry_unit *u, size_t *size)
{
	const struct ferry_bundle *b = (const void *)u->map;

	*size = b ? b->state_size : 0;
	return b ? u->map + b->state_at : NULL;
}

static void sender(const struct ferry_bundle_datagram *d, int v4, struct sockaddr_storage *from)
{
	memset(from, 0, sizeof(*from));
	if (v4) {
		struct sockaddr_in *in = (struct sockaddr_in *)from;

		in->sin_family = AF_INET;
		in->sin_port = d->port;
		memcpy(&in->sin_addr, d->from + 12, 4);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)from;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = d->port;
		memcpy(&in6->sin6_addr, d->from, 16);
	}
}

ssize_t ferry_unit_datagram(struct ferry_unit *u, unsigned int i, void *buf, size_t size,
			    struct sockaddr_storage *from)
{
	const struct ferry_bundle_datagram *d;
	int domain = AF_INET6;
	socklen_t length = sizeof(domain);

	if (i >= u->count)
		return -EINVAL;
	if (!u->map || !u->datagrams[i] || u->next_datagram[i] % 8 ||
	    !inside(u, u->next_datagram[i], sizeof(*d)))
		return -EAGAIN;
	d = (const void *)(u->map + u->next_datagram[i]);
	if (!inside(u, u->next_datagram[i] + sizeof(*d), d->size))
		return -EAGAIN;
	u->next_datagram[i] += sizeof(*d) + ((d->size + 7) & ~7ULL);
	u->datagrams[i]--;
	if (from) {
		getsockopt(u->fds[i], SOL_SOCKET, SO_DOMAIN, &domain, &length);
		sender(d, domain == AF_INET, from);
	}
	if (size > d->size)
		size = d->size;
	memcpy(buf, d + 1, size);
	return (ssize_t)size;
}

unsigned int ferry_unit_count(const struct ferry_unit *u)
{
	return u->count;
}

int ferry_unit_fd(const struct ferry_unit *u, unsigned int i)
{
	return i < u->count ? u->fds[i] : -1;
}

const char *ferry_unit_role(const struct ferry_unit *u, unsigned int i)
{
	return i < u->count ? u->roles[i] : "";
}

const uint8_t *ferry_unit_uuid(const struct ferry_unit *u)
{
	return u->uuid;
}

void ferry_unit_set_data(struct ferry_unit *u, void *data)
{
	u->data = data;
}

void *ferry_unit_data(const struct ferry_unit *u)
{
	return u->data;
}
