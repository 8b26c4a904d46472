// SPDX-License-Identifier: BSD-2-Clause
/*
 * The UNIX socket: applications (ferry/app.h) and commands (JSON, command.c). Who is on the other
 * side is what the kernel says of it when it is accepted. A message that breaks the protocol ends
 * that connection and no other.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "agent/app.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

#define COMMAND_MAX 4096

struct app {
	struct app *next;
	struct agent *agent;
	sd_event_source *source;
	int fd;
	struct ucred peer;
	char kind[32]; /* "": has not said HELLO */
};

struct received {
	char data[FERRY_APP_MESSAGE_MAX + 1];
	ssize_t size;
	int fds[FERRY_APP_SOCKETS];
	unsigned int count;
};

const char *app_kind(const struct app *app)
{
	return app->kind;
}

pid_t app_pid(const struct app *app)
{
	return app->peer.pid;
}

struct app *app_by_kind(struct agent *a, const char *kind)
{
	for (struct app *app = a->apps; app; app = app->next)
		if (app->kind[0] && !strcmp(app->kind, kind))
			return app;
	return NULL;
}

bool app_alive(const struct app *app)
{
	char c;
	ssize_t n = recv(app->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 || (n < 0 && errno == EAGAIN);
}

int app_send(struct app *app, const struct ferry_app_message *m)
{
	size_t sockets = m->type == FERRY_APP_LEND ? m->count : 0;
	size_t size = sizeof(*m) + sockets * sizeof(m->sockets[0]);

	return send(app->fd, m, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int app_say(struct app *app, enum ferry_app_type type, uint32_t id, const uint8_t uuid[16],
	    const char *text)
{
	struct ferry_app_message m = { .type = type, .version = FERRY_APP_VERSION, .id = id };

	memcpy(m.uuid, uuid, 16);
	snprintf(m.text, sizeof(m.text), "%s", text);
	return app_send(app, &m);
}

static void app_free(struct app *app)
{
	struct agent *a = app->agent;

	for (struct app **at = &a->apps; *at; at = &(*at)->next) {
		if (*at != app)
			continue;
		*at = app->next;
		break;
	}
	move_app_gone(a, app);
	for (struct unit *u = a->units, *next; u; u = next) {
		next = u->next;
		if (u->app == app && !u->move)
			unit_withdraw(a, u);
		else if (u->app == app)
			u->app = NULL;
	}
	sd_event_source_disable_unref(app->source);
	close_fd(&app->fd);
	free(app);
}

static struct unit *unit_of(struct app *app, uint32_t handle)
{
	for (struct unit *u = app->agent->units; u; u = u->next)
		if (u->app == app && u->handle == handle)
			return u;
	return NULL;
}

static int on_hello(struct app *app, const struct ferry_app_message *m)
{
	struct ferry_app_message answer = {
		.type = FERRY_APP_WELCOME,
		.version = FERRY_APP_VERSION,
	};

	if (app->kind[0] || !m->text[0])
		return -EPROTO;
	answer.result = m->version != FERRY_APP_VERSION	  ? -EPROTO :
			app_by_kind(app->agent, m->text) ? -EEXIST :
							   0;
	if (!answer.result)
		strcpy(app->kind, m->text);
	return app_send(app, &answer);
}

static int on_offer(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct unit *u = NULL;
	const char *refusal = "protocol";
	uint8_t none[16] = {};
	char uuid[UUID_TEXT];

	if (!m->count || m->count != in->count || unit_of(app, m->id))
		return -EPROTO;
	if (unit_offer(app->agent, app, m->id, in->fds, m->sockets, m->count, &u, &refusal)) {
		log_info("unit of '%s' (pid %d) refused: %s", app->kind, app->peer.pid, refusal);
		return app_say(app, FERRY_APP_OFFERED, m->id, none, refusal);
	}
	log_info("unit %s of '%s' (pid %d): %u sockets", uuid_text(u->uuid, uuid), app->kind,
		 app->peer.pid, u->count);
	return app_say(app, FERRY_APP_OFFERED, m->id, u->uuid, "");
}

static void on_withdraw(struct app *app, struct unit *u)
{
	if (u->move) { /* fails it, and leaves the unit */
		move_refuse(u->move, "not-connected", "withdrawn by the application");
		if (u->move->flipped)
			return;
		move_fail(u->move);
	}
	unit_withdraw(app->agent, u);
}

/* READY: the state is in a memfd, read whole by its size. */
static int take_state(struct move *m, const struct ferry_app_message *msg, struct received *in)
{
	ssize_t n;

	if (in->count != 1 || msg->size > FERRY_APP_STATE_MAX)
		return -EPROTO;
	free(m->state);
	m->state = malloc(msg->size + 1);
	n = m->state ? pread(in->fds[0], m->state, msg->size, 0) : -1;
	if (n != (ssize_t)msg->size)
		return -EPROTO;
	m->state_size = msg->size;
	return 0;
}

static int on_unit(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct unit *u = unit_of(app, m->id);

	if (!u)
		return 0; /* moved or withdrawn meanwhile */
	if (m->type == FERRY_APP_WITHDRAW) {
		on_withdraw(app, u);
		return 0;
	}
	if (!u->move)
		return 0;
	if (m->type == FERRY_APP_SOCKETS_ARE && move_in(u->move, STAGE_BORROW)) {
		if (in->count != u->count)
			return -EPROTO;
		for (unsigned int i = 0; i < u->count; i++)
			u->move->fds[i] = TAKE_FD(in->fds[i]);
		move_advance(u->move, STAGE_BORROW);
	} else if (m->type == FERRY_APP_READY && move_in(u->move, STAGE_QUIESCE)) {
		int r = take_state(u->move, m, in);

		if (r)
			return r;
		move_advance(u->move, STAGE_QUIESCE);
	} else if (m->type == FERRY_APP_REFUSE && move_in(u->move, STAGE_QUIESCE)) {
		move_refuse(u->move, "app-refused", "%s", "");
		move_fail(u->move);
	}
	return 0;
}

static int on_lent(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct move *move = move_by_request(app->agent, m->id);

	if (!move || move->app != app)
		return 0; /* ended meanwhile; what was lent is closed with the message */
	if (m->type == FERRY_APP_BUNDLE) {
		if (in->count == 1 && move->bundle < 0)
			move->bundle = TAKE_FD(in->fds[0]);
		return 0;
	}
	if (move->fds[0] < 0)
		destination_lent(move, m->handle, in->fds, in->count);
	return 0;
}

static int on_message(struct app *app, struct received *in)
{
	struct ferry_app_message *m = (struct ferry_app_message *)in->data;
	size_t sockets = m->type == FERRY_APP_OFFER ? m->count : 0;

	if ((size_t)in->size < sizeof(*m) || m->count > FERRY_APP_SOCKETS ||
	    (size_t)in->size != sizeof(*m) + sockets * sizeof(m->sockets[0]))
		return -EPROTO;
	m->text[sizeof(m->text) - 1] = 0;
	if (m->type == FERRY_APP_HELLO)
		return on_hello(app, m);
	if (!app->kind[0])
		return -EPROTO;
	switch (m->type) {
	case FERRY_APP_OFFER:
		return on_offer(app, m, in);
	case FERRY_APP_WITHDRAW:
	case FERRY_APP_SOCKETS_ARE:
	case FERRY_APP_READY:
	case FERRY_APP_REFUSE:
		return on_unit(app, m, in);
	case FERRY_APP_BUNDLE:
	case FERRY_APP_LENT:
		return on_lent(app, m, in);
	}
	return -EPROTO;
}

/* One message and its descriptors. 0 is the end, -EAGAIN none now. */
static ssize_t receive(int fd, struct received *in)
{
	char control[CMSG_SPACE(sizeof(in->fds))];
	struct iovec iov = { in->data, sizeof(in->data) };
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
	return h.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO : in->size;
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
		command_run(app->agent, TAKE_FD(app->fd), in.data, (size_t)n);
		r = -ESHUTDOWN;
	} else {
		r = on_message(app, &in);
	}
	for (unsigned int i = 0; i < in.count; i++)
		close_fd(&in.fds[i]);
	return r;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	struct app *app = arg;
	int r = handle(app);

	(void)s, (void)fd, (void)events;
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

static int on_accept(sd_event_source *s, int listener, uint32_t events, void *arg)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct app *app = fd < 0 ? NULL : calloc(1, sizeof(*app));
	socklen_t size = sizeof(app->peer);

	(void)s, (void)events;
	if (!app) {
		close_fd(&fd);
		return 0;
	}
	app->agent = arg;
	app->fd = fd;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &app->peer, &size) ||
	    sd_event_add_io(app->agent->event, &app->source, fd, EPOLLIN, on_io, app) < 0) {
		close(fd);
		free(app);
		return 0;
	}
	app->next = app->agent->apps;
	app->agent->apps = app;
	return 0;
}

int app_listen(struct agent *a, const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct group *group = getgrnam("ferry");
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r = 0;

	if (strlen(path) >= sizeof(un.sun_path) || fd < 0) {
		close_fd(&fd);
		return -ENAMETOOLONG;
	}
	strcpy(un.sun_path, path);
	unlink(path); /* we hold the node's lock: nobody else listens there */
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) || chmod(path, 0660) ||
	    (group && chown(path, (uid_t)-1, group->gr_gid)) || listen(fd, 128))
		r = -errno;
	if (!r)
		r = sd_event_add_io(a->event, NULL, fd, EPOLLIN, on_accept, a);
	if (r < 0) {
		log_error("cannot listen on %s: %s", path, strerror(-r));
		close(fd);
		return r;
	}
	return 0;
}
