// SPDX-License-Identifier: BSD-2-Clause
/*
 * libferry: offers and what the agent says. See ferry.h for the contract and ferry/app.h for the
 * messages. Nothing here waits: messages are small, and a full socket buffer is an error of the
 * call that met it, but for a withdrawal, which is repeated. Without an agent (connect.c) units
 * stay as they are, and the next one is told of them (resume.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lib.h"

struct ferry_unit *lib_unit_new(struct ferry *f, unsigned int count)
{
	struct ferry_unit *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->fds = calloc(count, sizeof(*u->fds));
	u->roles = calloc(count, sizeof(*u->roles));
	u->kept = calloc(count, sizeof(*u->kept));
	if (!u->fds || !u->roles || !u->kept) {
		free(u->fds);
		free(u->roles);
		free(u->kept);
		free(u);
		return NULL;
	}
	u->ferry = f;
	u->count = count;
	u->bundle = -1;
	u->handle = ++f->next_handle;
	u->next = f->units;
	f->units = u;
	return u;
}

void lib_unit_free(struct ferry_unit *u)
{
	for (struct ferry_unit **at = &u->ferry->units; *at; at = &(*at)->next) {
		if (*at != u)
			continue;
		*at = u->next;
		break;
	}
	lib_set_untold(u, false);
	if (u->bundle >= 0)
		close(u->bundle);
	free(u->fds);
	free(u->roles);
	free(u->kept);
	free(u);
}

int lib_send(struct ferry *f, const struct ferry_app_message *m, size_t size, const int *fds,
	     unsigned int count)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(FERRY_APP_SOCKETS * sizeof(int))] = {};
	struct iovec iov = { (void *)m, size };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		h.msg_control = control;
		h.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	return sendmsg(f->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int lib_say(struct ferry *f, enum ferry_app_type type, uint32_t id)
{
	struct ferry_app_message m = { .type = type, .version = FERRY_APP_VERSION, .id = id };

	return lib_send(f, &m, sizeof(m), NULL, 0);
}

int ferry_offer(struct ferry *f, const int *fds, const char *const *roles, unsigned int n,
		void *data, struct ferry_unit **ret)
{
	struct ferry_unit *u;
	int r;

	if (!n || n > FERRY_SOCKETS_MAX)
		return -EINVAL;
	for (unsigned int i = 0; roles && i < n; i++)
		if (roles[i] && strlen(roles[i]) > FERRY_ROLE_MAX)
			return -EINVAL;
	u = lib_unit_new(f, n);
	if (!u)
		return -ENOMEM;
	u->data = data;
	u->state = UNIT_OFFERED;
	for (unsigned int i = 0; i < n; i++) {
		u->fds[i] = fds[i];
		if (roles && roles[i])
			snprintf(u->roles[i], sizeof(u->roles[i]), "%s", roles[i]);
	}
	if (f->link == LINK_UP) {
		lib_tell(f);
		r = lib_send_offer(u);
		if (r) {
			lib_unit_free(u);
			return r;
		}
	} else {
		lib_set_untold(u, true);
	}
	*ret = u;
	return 0;
}

/* One that is behind has to be told later, or it would hold the unit's flows for ever. An agent
 * that comes finds for itself which of an earlier one's units have ended. */
void ferry_withdraw(struct ferry_unit *u)
{
	if (u->ferry->link == LINK_UP && !(u->untold && u->state == UNIT_OFFERED) &&
	    lib_say(u->ferry, FERRY_APP_WITHDRAW, u->handle) == -EAGAIN) {
		u->state = UNIT_WITHDRAWN;
		lib_set_untold(u, true);
		lib_want_room(u->ferry, true);
	}
	if (u->busy)
		u->withdrawn = true;
	else if (u->state != UNIT_WITHDRAWN)
		lib_unit_free(u);
}

/* The state goes as a memfd: it may be larger than a message. */
static int state_fd(const void *state, size_t size)
{
	int fd = memfd_create("ferry-state", MFD_CLOEXEC);

	for (size_t done = 0; fd >= 0 && done < size;) {
		ssize_t n = write(fd, (const char *)state + done, size - done);

		if (n < 0) {
			int r = -errno;

			close(fd);
			return r;
		}
		done += (size_t)n;
	}
	return fd < 0 ? -errno : fd;
}

int ferry_ready(struct ferry_unit *u, const void *state, size_t size)
{
	struct ferry_app_message m = {
		.type = FERRY_APP_READY,
		.version = FERRY_APP_VERSION,
		.id = u->handle,
		.size = (uint32_t)size,
	};
	int fd, r;

	if (u->state != UNIT_QUIESCED || size > FERRY_STATE_MAX)
		return -EINVAL;
	if (u->ferry->link != LINK_UP || u->untold || u->resuming)
		return 0; /* asked by an agent that is gone: the next one will say how it ended */
	lib_keep_options(u);
	fd = state_fd(state, size);
	if (fd < 0)
		return fd;
	r = lib_send(u->ferry, &m, sizeof(m), &fd, 1);
	close(fd);
	return r;
}

int ferry_refuse(struct ferry_unit *u)
{
	if (u->state != UNIT_QUIESCED)
		return -EINVAL;
	if (u->ferry->link != LINK_UP || u->untold || u->resuming)
		return 0;
	return lib_say(u->ferry, FERRY_APP_REFUSE, u->handle);
}

static struct ferry_unit *find(struct ferry *f, const struct ferry_app_message *m)
{
	bool by_request = m->type == FERRY_APP_GO || m->type == FERRY_APP_DISCARD;

	for (struct ferry_unit *u = f->units; u; u = u->next) {
		if (by_request ? u->state == UNIT_LENT &&
					 (m->id ? u->request == m->id : u->handle == m->handle) :
				 u->state != UNIT_LENT && u->state != UNIT_WITHDRAWN &&
					 u->handle == m->id)
			return u;
	}
	return NULL;
}

/* Where a descriptor is none any more, the agent gets none of them, and ends the move. */
static void lend_out(struct ferry_unit *u)
{
	struct ferry_app_message m = {
		.type = FERRY_APP_SOCKETS_ARE,
		.version = FERRY_APP_VERSION,
		.id = u->handle,
		.count = u->count,
	};

	if (lib_send(u->ferry, &m, sizeof(m), u->fds, u->count) == -EBADF)
		lib_send(u->ferry, &m, sizeof(m), NULL, 0);
}

/* What the agent may say of a unit depends on what was said before. */
static bool in_turn(const struct ferry_unit *u, uint16_t type)
{
	switch (type) {
	case FERRY_APP_OFFERED:
		return u->state == UNIT_OFFERED || u->resuming;
	case FERRY_APP_BORROW:
	case FERRY_APP_QUIESCE:
		return u->state == UNIT_OURS && !u->resuming;
	case FERRY_APP_ABORTED:
	case FERRY_APP_COMMITTED:
		return u->state == UNIT_QUIESCED;
	case FERRY_APP_GO:
	case FERRY_APP_DISCARD:
		return u->state == UNIT_LENT;
	}
	return false;
}

/* Makes the callback that m asks for. True: the unit ends with it. */
static bool call(struct ferry_unit *u, const struct ferry_app_message *m)
{
	const struct ferry_ops *ops = u->ferry->ops;
	void *arg = u->ferry->arg;
	const char *text = m->text[0] ? m->text : NULL;
	bool resumed = u->resuming;

	u->resuming = false;
	switch (m->type) {
	case FERRY_APP_OFFERED:
		memcpy(u->uuid, m->uuid, sizeof(u->uuid));
		u->state = UNIT_OURS;
		if (ops->offered)
			ops->offered(u, text, arg);
		return text;
	case FERRY_APP_QUIESCE:
		u->state = UNIT_QUIESCED;
		if (ops->quiesce)
			ops->quiesce(u, arg);
		else
			ferry_ready(u, NULL, 0);
		return false;
	case FERRY_APP_ABORTED:
		memcpy(u->uuid, m->uuid, sizeof(u->uuid));
		u->state = UNIT_OURS;
		if (resumed)
			lib_set_options_back(u);
		if (ops->aborted)
			ops->aborted(u, m->text, arg);
		return false;
	case FERRY_APP_COMMITTED:
		if (ops->committed)
			ops->committed(u, arg);
		return true;
	case FERRY_APP_GO:
		lib_arrive(u, m->uuid);
		return false;
	}
	return false;
}

static void act(struct ferry *f, const struct ferry_app_message *m)
{
	struct ferry_unit *u;
	bool ended;

	if (m->type == FERRY_APP_LEND) {
		lib_lend(f, m);
		return;
	}
	u = find(f, m);
	if (!u || !in_turn(u, m->type))
		return; /* withdrawn meanwhile */
	if (m->type == FERRY_APP_BORROW) {
		lend_out(u);
		return;
	}
	if (m->type == FERRY_APP_DISCARD) {
		lib_discard(u);
		return;
	}
	u->busy = true;
	ended = call(u, m);
	u->busy = false;
	if (ended || (u->withdrawn && u->state != UNIT_WITHDRAWN))
		lib_unit_free(u);
}

/* Everything that has come. -EAGAIN: no more now. */
static int read_messages(struct ferry *f)
{
	_Alignas(struct ferry_app_message) char buf[FERRY_APP_MESSAGE_MAX];
	struct ferry_app_message *m = (struct ferry_app_message *)buf;

	for (;;) {
		ssize_t n = recv(f->fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0)
			return -errno;
		if (!n)
			return -ECONNRESET;
		if ((size_t)n < sizeof(*m) ||
		    (m->type == FERRY_APP_LEND &&
		     (m->count > FERRY_APP_SOCKETS ||
		      (size_t)n != sizeof(*m) + m->count * sizeof(m->sockets[0]))))
			return -EPROTO;
		m->text[sizeof(m->text) - 1] = 0;
		act(f, m);
	}
}

int ferry_dispatch(struct ferry *f)
{
	int r = f->link == LINK_UP ? 0 : lib_reconnect(f);

	if (r)
		return 0; /* not yet */
	lib_tell(f);
	r = read_messages(f);
	if (r != -EAGAIN)
		lib_lost(f, r);
	return 0;
}
