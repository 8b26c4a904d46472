// SPDX-License-Identifier: BSD-2-Clause
/*
 * libferry: registration with the agent, again when it is lost, and its end. Only ferry_open()
 * waits; later connections are tried by a timer, from ferry_dispatch().
 */
#include <dirent.h>
#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>
#include "lib.h"

#define OPEN_TIMEOUT_MS 2000
#define RETRY_MIN_MS 10 /* then twice as long each time */
#define RETRY_MAX_MS 1000
#define TELL_AGAIN_MS 100
#define RUN "/run/ferry"

/* The socket of the only agent on this machine; NULL where there is none, or more than one. */
static const char *only_agent(char *path, size_t size)
{
	DIR *dir = opendir(RUN);
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		size_t length = strlen(e->d_name);

		if (length < 6 || strcmp(e->d_name + length - 5, ".sock"))
			continue;
		snprintf(path, size, RUN "/%s", e->d_name);
		n++;
	}
	if (dir)
		closedir(dir);
	return n == 1 ? path : NULL;
}

static int find_path(struct ferry *f, const char *path)
{
	char only[sizeof(RUN) + 256];

	if (!path)
		path = getenv("FERRY_SOCKET");
	if (!path)
		path = only_agent(only, sizeof(only));
	if (!path)
		return -ENOENT;
	if (strlen(path) >= sizeof(f->path))
		return -ENAMETOOLONG;
	strcpy(f->path, path);
	return 0;
}

/* flags: SOCK_NONBLOCK, or to wait so long where the agent does not accept. */
static int connect_agent(struct ferry *f, int flags)
{
	struct timeval wait = { .tv_sec = OPEN_TIMEOUT_MS / 1000 };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct epoll_event event = { .events = EPOLLIN };
	int r;

	memcpy(un.sun_path, f->path, sizeof(f->path));
	f->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	if (f->fd < 0 || setsockopt(f->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
		return -errno;
	r = connect(f->fd, (struct sockaddr *)&un, sizeof(un)) ? -errno : 0;
	if (r)
		return r == -EAGAIN ? -ETIMEDOUT : r;
	return epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->fd, &event) ? -errno : 0;
}

/* With a socket by which the agent may ask, in this namespace, what sockets there are. */
static int say_hello(struct ferry *f)
{
	struct ferry_app_message m = { .type = FERRY_APP_HELLO, .version = FERRY_APP_VERSION };
	int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int r;

	snprintf(m.text, sizeof(m.text), "%s", f->kind);
	r = lib_send(f, &m, sizeof(m), &diag, diag >= 0);
	if (diag >= 0)
		close(diag);
	return r;
}

static int read_welcome(struct ferry *f)
{
	struct ferry_app_message m;
	ssize_t n = recv(f->fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n != sizeof(m) || m.type != FERRY_APP_WELCOME || m.result > 0)
		return -EPROTO;
	return m.result;
}

static int greet(struct ferry *f)
{
	struct pollfd p = { f->fd, POLLIN, 0 };
	int r = say_hello(f);

	if (r)
		return r;
	return poll(&p, 1, OPEN_TIMEOUT_MS) == 1 ? read_welcome(f) : -ETIMEDOUT;
}

static int make_epoll(struct ferry *f)
{
	struct epoll_event event = { .events = EPOLLIN };

	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	f->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (f->epoll < 0 || f->timer < 0 || epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->timer, &event))
		return -errno;
	return 0;
}

int ferry_open(struct ferry **ret, const char *path, const char *kind, const struct ferry_ops *ops,
	       void *arg)
{
	struct ferry *f;
	int r;

	if (!ops || !ops->arrived || !kind || !*kind || strlen(kind) > FERRY_KIND_MAX)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->fd = f->epoll = f->timer = -1;
	f->ops = ops;
	f->arg = arg;
	strcpy(f->kind, kind);
	r = find_path(f, path);
	r = r ? r : make_epoll(f);
	r = r ? r : connect_agent(f, 0);
	r = r ? r : greet(f);
	if (r) {
		ferry_close(f);
		return r == -EAGAIN ? -ETIMEDOUT : r;
	}
	f->link = LINK_UP;
	*ret = f;
	return 0;
}

static void close_link(struct ferry *f)
{
	if (f->fd >= 0)
		close(f->fd); /* and out of the epoll */
	f->fd = -1;
	f->link = LINK_DOWN;
}

static void set_timer(struct ferry *f, uint32_t ms)
{
	struct itimerspec at = { .it_value = { ms / 1000, ms % 1000 * 1000000L } };

	timerfd_settime(f->timer, 0, &at, NULL);
}

static void retry_later(struct ferry *f)
{
	close_link(f);
	f->retry_ms = f->retry_ms ? f->retry_ms * 2 : RETRY_MIN_MS;
	if (f->retry_ms > RETRY_MAX_MS)
		f->retry_ms = RETRY_MAX_MS;
	set_timer(f, f->retry_ms);
}

void lib_lost(struct ferry *f, int error)
{
	retry_later(f);
	for (struct ferry_unit *u = f->units, *next; u; u = next) {
		next = u->next;
		u->request = 0;
		u->resuming = false;
		if (u->state == UNIT_WITHDRAWN)
			lib_unit_free(u);
		else
			lib_set_untold(u, true);
	}
	if (f->ops->connected)
		f->ops->connected(error, f->arg);
}

static int try_again(struct ferry *f)
{
	int r = connect_agent(f, SOCK_NONBLOCK);

	r = r ? r : say_hello(f);
	if (r)
		return r;
	f->link = LINK_GREETING;
	set_timer(f, OPEN_TIMEOUT_MS);
	return -EAGAIN;
}

/* -EAGAIN: nothing is due. */
static int next_step(struct ferry *f)
{
	uint64_t times;
	bool due = read(f->timer, &times, sizeof(times)) == sizeof(times);
	int r;

	if (f->link == LINK_DOWN)
		return due ? try_again(f) : -EAGAIN;
	r = read_welcome(f);
	return r == -EAGAIN && due ? -ETIMEDOUT : r;
}

int lib_reconnect(struct ferry *f)
{
	int r = next_step(f);

	if (r == -EAGAIN)
		return r;
	if (r) {
		retry_later(f);
		return r;
	}
	set_timer(f, 0);
	f->retry_ms = 0;
	f->link = LINK_UP;
	if (f->ops->connected)
		f->ops->connected(0, f->arg);
	return 0;
}

void lib_want_room(struct ferry *f, bool want)
{
	struct epoll_event event = { .events = EPOLLIN | (want ? EPOLLOUT : 0) };

	if (f->fd >= 0)
		epoll_ctl(f->epoll, EPOLL_CTL_MOD, f->fd, &event);
}

void lib_tell_again(struct ferry *f, bool again)
{
	if (f->link == LINK_UP && (again || f->again))
		set_timer(f, again ? TELL_AGAIN_MS : 0);
	f->again = again;
}

void ferry_close(struct ferry *f)
{
	if (!f)
		return;
	while (f->units) {
		if (f->units->state == UNIT_LENT)
			lib_discard(f->units);
		else
			lib_unit_free(f->units);
	}
	close_link(f);
	if (f->timer >= 0)
		close(f->timer);
	if (f->epoll >= 0)
		close(f->epoll);
	free(f);
}

int ferry_fd(const struct ferry *f)
{
	return f->epoll;
}
