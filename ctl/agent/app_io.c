// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connections to the UNIX socket: accepting, receiving with descriptors, and sending. Nothing here
 * waits: what a socket does not take is kept, in order and bounded, for a message that is lost
 * (GO, COMMITTED) is a connection lost. An application that lets too many lie is disconnected.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "agent/access.h"
#include "agent/app_io.h"
#include "agent/space.h"
#include "agent/upgrade.h"
#include "base/log.h"
#include "base/util.h"

#define OUT_MAX 1024  /* messages */
#define SILENT_MAX 64 /* connections of one user that have said nothing yet */
#define ALL_MAX 1024  /* connections of all bounded users (access.h) */

struct app_message {
	struct app_message *next;
	size_t size;
	uint8_t data[];
};

static void app_free(struct app *app)
{
	for (struct app **at = &app->agent->apps; *at; at = &(*at)->next) {
		if (*at != app)
			continue;
		*at = app->next;
		break;
	}
	app_gone(app);
	while (app->out) {
		struct app_message *m = app->out;

		app->out = m->next;
		free(m);
	}
	sd_event_source_disable_unref(app->source);
	close_fd(&app->fd);
	space_release(app->agent, app->space);
	close_fd(&app->bundle);
	free(app);
}

bool app_alive(const struct app *app)
{
	char c;
	ssize_t n = recv(app->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 || (n < 0 && errno == EAGAIN);
}

static int keep(struct app *app, const void *data, size_t size)
{
	struct app_message *m = app->out_count < OUT_MAX ? malloc(sizeof(*m) + size) : NULL;

	if (!m) {
		log_warning("application '%s' (pid %d) reads nothing", app->kind, app->peer.pid);
		shutdown(app->fd, SHUT_RDWR); /* its end is found in the loop */
		return -ENOBUFS;
	}
	m->next = NULL;
	m->size = size;
	memcpy(m->data, data, size);
	*app->out_last = m;
	app->out_last = &m->next;
	app->out_count++;
	sd_event_source_set_io_events(app->source, EPOLLIN | EPOLLOUT);
	return 0;
}

int app_send(struct app *app, const struct ferry_app_message *m)
{
	size_t sockets = m->type == FERRY_APP_LEND ? m->count : 0;
	size_t size = sizeof(*m) + sockets * sizeof(m->sockets[0]);

	if (!app)
		return -ENOTCONN; /* gone since */
	if (!app->out && send(app->fd, m, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return app->out || errno == EAGAIN ? keep(app, m, size) : -errno;
}

static void flush(struct app *app)
{
	while (app->out) {
		struct app_message *m = app->out;

		if (send(app->fd, m->data, m->size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return; /* EAGAIN, or its end, which is read */
		app->out = m->next;
		app->out_count--;
		free(m);
	}
	app->out_last = &app->out;
	sd_event_source_set_io_events(app->source, EPOLLIN);
}

/* One message and its descriptors. 0 is the end, -EAGAIN none now. */
static ssize_t receive(int fd, struct received *in)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(in->fds))];
	struct iovec iov = { in->data, sizeof(in->data) - 1 };
	struct msghdr h = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	in->count = 0;
	in->size = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (in->size < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		in->count = (unsigned int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(in->fds, CMSG_DATA(c), in->count * sizeof(int));
	}
	in->cut = h.msg_flags & MSG_CTRUNC;
	return h.msg_flags & MSG_TRUNC ? -EPROTO : in->size;
}

static int handle(struct app *app)
{
	struct received in;
	ssize_t n = receive(app->fd, &in);
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		r = n ? (int)n : -ECONNRESET;
	} else if (in.data[0] == '{' && !app->kind[0]) {
		in.data[n] = 0;
		app->source = sd_event_source_disable_unref(app->source);
		command_run(app->agent, TAKE_FD(app->fd), in.data, (size_t)n);
		r = -ESHUTDOWN;
	} else {
		r = app_message(app, &in);
	}
	for (unsigned int i = 0; i < in.count; i++)
		close_fd(&in.fds[i]);
	return r;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	struct app *app = arg;
	int r;

	(void)s, (void)fd;
	if (events & EPOLLOUT)
		flush(app);
	r = events & ~EPOLLOUT ? handle(app) : 0;
	if (!r)
		return 0;
	if (app->kind[0])
		log_info("application '%s' (pid %d) is gone: %s", app->kind, app->peer.pid,
			 strerror(-r));
	else if (r == -EPROTO)
		log_warning("pid %d (uid %u) broke the socket's protocol", app->peer.pid,
			    app->peer.uid);
	app_free(app);
	return 0;
}

/* The newest connections are in front. Of one user's too many that say nothing, its own oldest
 * goes: nobody's connections cost another user one, unless there are many such users. */
static void limit(struct app *newest)
{
	const struct agent *a = newest->agent;
	struct app *oldest = NULL;
	unsigned int silent = 0, all = 0;

	for (struct app *app = a->apps; app; app = app->next) {
		all += access_bounded(a, app->peer.uid);
		if (app->kind[0] || app->peer.uid != newest->peer.uid)
			continue;
		silent++;
		oldest = app;
	}
	if (silent > SILENT_MAX)
		app_free(oldest);
	else if (all > ALL_MAX && access_bounded(a, newest->peer.uid))
		app_free(newest);
}

static int on_accept(sd_event_source *s, int listener, uint32_t events, void *arg)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct app *app = fd < 0 ? NULL : calloc(1, sizeof(*app));
	socklen_t size = sizeof(app->peer);

	(void)events;
	if (fd < 0)
		accept_later(s, errno);
	if (!app) {
		close_fd(&fd);
		return 0;
	}
	app->agent = arg;
	app->fd = fd;
	app->bundle = -1;
	app->out_last = &app->out;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &app->peer, &size) ||
	    sd_event_add_io(app->agent->event, &app->source, fd, EPOLLIN, on_io, app) < 0) {
		close(fd);
		free(app);
		return 0;
	}
	app->next = app->agent->apps;
	app->agent->apps = app;
	limit(app);
	return 0;
}

/* Made 0660, then given away by descriptor: whoever may write to its directory cannot have us give
 * away something else. */
static int own(struct agent *a, const char *path)
{
	const struct group *group = getgrnam("ferry");
	gid_t gid = group ? group->gr_gid : a->user.gid;
	int r = give_away(AT_FDCWD, path, S_IFSOCK, a->user.uid, gid);

	if (r == -EPERM && a->user.uid == geteuid()) { /* not root, nor in that group */
		log_warning("%s cannot have the group ferry: the agent is not in it", path);
		r = 0;
	}
	return r;
}

static int open_listener(struct agent *a, const char *path, int *fd)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	mode_t mask;
	int r;

	if (strlen(path) >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	strcpy(un.sun_path, path);
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return -errno;
	unlink(path); /* we hold the node's lock: nobody else listens there */
	mask = umask(0117);
	r = bind(*fd, (struct sockaddr *)&un, sizeof(un)) || listen(*fd, 128) ? -errno : 0;
	umask(mask);
	return r ? r : own(a, path);
}

/* What was handed on, where it is this listener; else -1. */
static int handed_listener(const char *path)
{
	_cleanup_close_ int fd = upgrade_handed(HANDED_APP);
	struct sockaddr_un un = {};
	socklen_t size = sizeof(un) - 1;

	if (!is_listener(fd, SOCK_SEQPACKET) || getsockname(fd, (struct sockaddr *)&un, &size) ||
	    un.sun_family != AF_UNIX || strcmp(un.sun_path, path))
		return -1;
	return TAKE_FD(fd);
}

int app_listen(struct agent *a, const char *path)
{
	int fd = handed_listener(path);
	int r = fd < 0 ? open_listener(a, path, &fd) : 0;

	if (!r)
		r = sd_event_add_io(a->event, NULL, fd, EPOLLIN, on_accept, a);
	if (r < 0) {
		log_error("cannot listen on %s: %s", path, strerror(-r));
		close_fd(&fd);
		return r;
	}
	upgrade_keep(HANDED_APP, fd);
	return 0;
}
