// SPDX-License-Identifier: BSD-2-Clause
/*
 * What applications say (ferry/app.h). Who is on the other side is what the kernel said of it when
 * it was accepted (app_io.c). A message that breaks the protocol ends that connection and no other;
 * a descriptor that is not what it should be ends the move that it is for, and no more.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include "agent/access.h"
#include "agent/app_io.h"
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"
#include "move/resume.h"

const char *app_kind(const struct app *app)
{
	return app->kind;
}

pid_t app_pid(const struct app *app)
{
	return app->peer.pid;
}

struct space *app_space(const struct app *app)
{
	return app->space;
}

struct app *app_by_kind(struct agent *a, const char *kind)
{
	for (struct app *app = a->apps; app; app = app->next)
		if (app->kind[0] && !strcmp(app->kind, kind))
			return app;
	return NULL;
}

int app_say(struct app *app, enum ferry_app_type type, uint32_t id, const uint8_t uuid[16],
	    const char *text)
{
	struct ferry_app_message m = { .type = type, .version = FERRY_APP_VERSION, .id = id };

	memcpy(m.uuid, uuid, 16);
	snprintf(m.text, sizeof(m.text), "%s", text);
	return app_send(app, &m);
}

int app_say_lent(struct app *app, enum ferry_app_type type, uint32_t request, uint32_t handle,
		 const uint8_t uuid[16])
{
	struct ferry_app_message m = {
		.type = type,
		.version = FERRY_APP_VERSION,
		.id = request,
		.handle = handle,
	};

	memcpy(m.uuid, uuid, 16);
	return app_send(app, &m);
}

void app_gone(struct app *app)
{
	struct agent *a = app->agent;

	move_app_gone(a, app);
	for (struct unit *u = a->units; u; u = u->next)
		if (u->app == app)
			unit_give_up(u);
}

static struct unit *unit_of(struct app *app, uint32_t handle)
{
	for (struct unit *u = app->agent->units; u; u = u->next)
		if (u->app == app && u->handle == handle)
			return u;
	return NULL;
}

/* It stands in log lines and in answers. */
static bool printable(const char *text)
{
	while (isascii((unsigned char)*text) && isprint((unsigned char)*text))
		text++;
	return !*text;
}

/* A sock_diag socket answers for the namespace it was made in, whoever asks by it. */
static int enter_space(struct app *app, const struct received *in)
{
	int protocol = -1, domain = -1;
	socklen_t size = sizeof(int);
	uint64_t cookie = app->agent->netns;

	if (in->count) {
		if (in->count != 1 ||
		    getsockopt(in->fds[0], SOL_SOCKET, SO_DOMAIN, &domain, &size) ||
		    getsockopt(in->fds[0], SOL_SOCKET, SO_PROTOCOL, &protocol, &size) ||
		    domain != AF_NETLINK || protocol != NETLINK_SOCK_DIAG)
			return -EPROTO;
		cookie = socket_netns(in->fds[0]);
	}
	app->space = space_hold(app->agent, cookie);
	if (!app->space)
		return -ENOMEM;
	if (in->count)
		space_lend_diag(app->space, in->fds[0]);
	return 0;
}

static int on_hello(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct ferry_app_message answer = {
		.type = FERRY_APP_WELCOME,
		.version = FERRY_APP_VERSION,
	};
	int r;

	if (app->space || !m->text[0] || !printable(m->text))
		return -EPROTO;
	r = enter_space(app, in);
	if (r)
		return r;
	answer.result = m->version != FERRY_APP_VERSION ? -EPROTO : access_register(app, m->text);
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

	if (!m->count || unit_of(app, m->id) || (m->count != in->count && !in->cut))
		return -EPROTO;
	if (in->cut)
		return app_say(app, FERRY_APP_OFFERED, m->id, none, "no-memory");
	if (unit_offer(app->agent, app, m->id, in->fds, m->sockets, m->count, &u, &refusal)) {
		log_info("unit of '%s' (pid %d) refused: %s", app->kind, app->peer.pid, refusal);
		return app_say(app, FERRY_APP_OFFERED, m->id, none, refusal);
	}
	log_info("unit %s of '%s' (pid %d): %u sockets", uuid_text(u->uuid, uuid), app->kind,
		 app->peer.pid, u->count);
	return app_say(app, FERRY_APP_OFFERED, m->id, u->uuid, "");
}

static void on_withdraw(struct unit *u)
{
	if (u->move && u->move->flipped)
		return; /* not its own any more */
	if (u->move) {  /* fails it, and leaves the unit */
		move_refuse(u->move, "not-connected", "withdrawn by the application");
		move_fail(u->move);
	}
	unit_give_up(u);
}

static void fail(struct move *m, const char *refusal, const char *detail)
{
	move_refuse(m, refusal, "%s", detail);
	move_fail(m);
}

/* Memory that the kernel gives at once: a read from, or a write to, any other file may wait. */
static bool is_memfd(int fd)
{
	return fcntl(fd, F_GET_SEALS) >= 0;
}

/* BORROW is answered: with as many descriptors as were offered, or the move ends. */
static void take_sockets(struct unit *u, struct received *in)
{
	struct move *m = u->move;

	if (in->count != u->count) {
		fail(m, in->cut ? "no-memory" : "app-sockets", "not as many as were offered");
		return;
	}
	for (unsigned int i = 0; i < u->count; i++)
		m->fds[i] = TAKE_FD(in->fds[i]);
	move_advance(m, STAGE_BORROW);
}

/* QUIESCE is answered: the state is in a memfd, read whole by its size. */
static void take_state(struct move *m, const struct ferry_app_message *msg, struct received *in)
{
	ssize_t n;

	if (in->count != 1 || !is_memfd(in->fds[0]) || msg->size > FERRY_APP_STATE_MAX) {
		fail(m, in->cut ? "no-memory" : "app-state", "no memfd of its size");
		return;
	}
	free(m->state);
	m->state = malloc(msg->size + 1);
	n = m->state ? pread(in->fds[0], m->state, msg->size, 0) : -1;
	if (n != (ssize_t)msg->size) {
		fail(m, m->state ? "app-state" : "no-memory", "the memfd is shorter than its size");
		return;
	}
	m->state_size = msg->size;
	move_advance(m, STAGE_QUIESCE);
}

static int on_unit(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct unit *u = unit_of(app, m->id);

	if (!u)
		return 0; /* moved or withdrawn meanwhile */
	if (m->type == FERRY_APP_WITHDRAW) {
		on_withdraw(u);
		return 0;
	}
	if (!u->move)
		return 0;
	if (m->type == FERRY_APP_SOCKETS_ARE && move_in(u->move, STAGE_BORROW))
		take_sockets(u, in);
	else if (m->type == FERRY_APP_READY && move_in(u->move, STAGE_QUIESCE))
		take_state(u->move, m, in);
	else if (m->type == FERRY_APP_REFUSE &&
		 (move_in(u->move, STAGE_BORROW) || move_in(u->move, STAGE_QUIESCE)))
		fail(u->move, "app-refused", "");
	return 0;
}

static int on_resume(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct resumed r = {
		.app = app,
		.handle = m->id,
		.was = (enum ferry_app_resume)m->result,
		.uuid = m->uuid,
		.fds = in->fds,
		.count = m->count,
		.sockets = m->sockets,
		.bundle = TAKE_FD(app->bundle),
	};
	const char *refusal = NULL;
	uint8_t none[16] = {};
	char uuid[UUID_TEXT];
	int e;

	if (!m->count || unit_of(app, m->id) || (m->count != in->count && !in->cut) ||
	    m->result < 0 || m->result > FERRY_RESUME_LENT || in->cut) {
		close_fd(&r.bundle);
		return in->cut ? -EMFILE : -EPROTO; /* it will come again, and with it the unit */
	}
	e = resume(app->agent, &r, &refusal);
	close_fd(&r.bundle);
	if (e || !refusal)
		return e;
	log_info("unit %s of '%s' (pid %d) not resumed: %s", uuid_text(m->uuid, uuid), app->kind,
		 app->peer.pid, refusal);
	return m->result == FERRY_RESUME_LENT ?
		       app_say_lent(app, FERRY_APP_DISCARD, 0, m->id, m->uuid) :
		       app_say(app, FERRY_APP_OFFERED, m->id, none, refusal);
}

static int on_lent(struct app *app, const struct ferry_app_message *m, struct received *in)
{
	struct move *move = move_by_request(app->agent, m->id);

	if (m->type == FERRY_APP_BUNDLE && !m->id && in->count == 1 && is_memfd(in->fds[0])) {
		close_fd(&app->bundle);
		app->bundle = TAKE_FD(in->fds[0]);
		return 0;
	}
	if (m->type == FERRY_APP_BUNDLE && !m->id && in->cut)
		return -EMFILE; /* its RESUME would look like one of a set that was never filled */
	if (!move || move->app != app)
		return 0; /* ended meanwhile; what was lent is closed with the message */
	if (m->type == FERRY_APP_BUNDLE) {
		if (in->count == 1 && move->bundle < 0 && is_memfd(in->fds[0]))
			move->bundle = TAKE_FD(in->fds[0]);
		return 0;
	}
	if (move->fds[0] < 0)
		destination_lent(move, m->handle, in->fds, in->count);
	return 0;
}

int app_message(struct app *app, struct received *in)
{
	struct ferry_app_message *m = (struct ferry_app_message *)in->data;
	bool lists = m->type == FERRY_APP_OFFER || m->type == FERRY_APP_RESUME;
	size_t sockets = lists ? m->count : 0;

	if ((size_t)in->size < sizeof(*m) || m->count > FERRY_APP_SOCKETS ||
	    (size_t)in->size != sizeof(*m) + sockets * sizeof(m->sockets[0]))
		return -EPROTO;
	m->text[sizeof(m->text) - 1] = 0;
	if (m->type == FERRY_APP_HELLO)
		return on_hello(app, m, in);
	if (!app->kind[0])
		return -EPROTO;
	switch (m->type) {
	case FERRY_APP_OFFER:
		return on_offer(app, m, in);
	case FERRY_APP_RESUME:
		return on_resume(app, m, in);
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
