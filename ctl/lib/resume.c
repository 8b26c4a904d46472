// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a new agent, or one that was behind, is still to be told: offers, withdrawals, and units
 * that an earlier agent knew, by uuid and with their descriptors, so that it can finish what that
 * one had begun.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "lib.h"

static const struct {
	int level, name;
	size_t at;
} options[] = {
	{ SOL_SOCKET, SO_REUSEADDR, offsetof(struct kept, reuseaddr) },
	{ SOL_SOCKET, SO_KEEPALIVE, offsetof(struct kept, keepalive) },
	{ SOL_SOCKET, SO_OOBINLINE, offsetof(struct kept, oobinline) },
	{ SOL_SOCKET, SO_PEEK_OFF, offsetof(struct kept, peek_off) },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, offsetof(struct kept, user_timeout) },
};
#define OPTIONS (sizeof(options) / sizeof(options[0]))

static int *kept_option(const struct ferry_unit *u, unsigned int i, unsigned int option)
{
	return (int *)((char *)&u->kept[i] + options[option].at);
}

void lib_keep_options(struct ferry_unit *u)
{
	u->has_kept = true;
	for (unsigned int i = 0; i < u->count; i++)
		for (unsigned int k = 0; k < OPTIONS; k++) {
			int *value = kept_option(u, i, k);
			socklen_t size = sizeof(*value);

			if (getsockopt(u->fds[i], options[k].level, options[k].name, value, &size))
				*value = -1;
		}
}

void lib_set_options_back(const struct ferry_unit *u)
{
	for (unsigned int i = 0; u->has_kept && i < u->count; i++)
		for (unsigned int k = 0; k < OPTIONS; k++) {
			const int *value = kept_option(u, i, k);

			/* -1 switches a peek offset off, and is none of the others' values */
			if (*value >= 0 || options[k].name == SO_PEEK_OFF)
				setsockopt(u->fds[i], options[k].level, options[k].name, value,
					   sizeof(*value));
		}
}

void lib_set_untold(struct ferry_unit *u, bool untold)
{
	if (u->untold != untold)
		u->ferry->untold += untold ? 1 : -1U;
	u->untold = untold;
}

/* OFFER or RESUME. */
static int send_unit(struct ferry_unit *u, enum ferry_app_type type, int32_t result)
{
	_Alignas(struct ferry_app_message) char buf[FERRY_APP_MESSAGE_MAX] = {};
	struct ferry_app_message *m = (struct ferry_app_message *)buf;

	m->type = (uint16_t)type;
	m->version = FERRY_APP_VERSION;
	m->id = u->handle;
	m->result = result;
	m->count = u->count;
	memcpy(m->uuid, u->uuid, sizeof(m->uuid));
	for (unsigned int i = 0; i < u->count; i++)
		memcpy(m->sockets[i].role, u->roles[i], sizeof(u->roles[i]));
	return lib_send(u->ferry, m, sizeof(*m) + u->count * sizeof(m->sockets[0]), u->fds,
			u->count);
}

int lib_send_offer(struct ferry_unit *u)
{
	return send_unit(u, FERRY_APP_OFFER, 0);
}

static int send_lent(struct ferry_unit *u)
{
	struct ferry_app_message m = {
		.type = FERRY_APP_BUNDLE,
		.version = FERRY_APP_VERSION,
		.handle = u->handle,
	};
	int r = lib_send(u->ferry, &m, sizeof(m), &u->bundle, 1);

	return r ? r : send_unit(u, FERRY_APP_RESUME, FERRY_RESUME_LENT);
}

static int tell(struct ferry_unit *u)
{
	switch (u->state) {
	case UNIT_OFFERED:
		return lib_send_offer(u);
	case UNIT_WITHDRAWN:
		return lib_say(u->ferry, FERRY_APP_WITHDRAW, u->handle);
	case UNIT_OURS:
		return send_unit(u, FERRY_APP_RESUME, FERRY_RESUME_OURS);
	case UNIT_QUIESCED:
		return send_unit(u, FERRY_APP_RESUME, FERRY_RESUME_QUIESCED);
	case UNIT_LENT:
		return send_lent(u);
	}
	return 0;
}

/* A descriptor of it is none any more: the application has closed it without a withdrawal. */
static void give_up(struct ferry_unit *u)
{
	const struct ferry_ops *ops = u->ferry->ops;

	u->busy = true;
	if (u->state != UNIT_LENT && ops->offered)
		ops->offered(u, "app-sockets", u->ferry->arg);
	u->busy = false;
	lib_unit_free(u);
}

static struct ferry_unit *next_untold(struct ferry *f)
{
	struct ferry_unit *u = f->untold ? f->units : NULL;

	while (u && (!u->untold || u->busy))
		u = u->next;
	return u;
}

void lib_tell(struct ferry *f)
{
	struct ferry_unit *u;
	int r = 0;

	while (f->link == LINK_UP && !r && (u = next_untold(f))) {
		r = tell(u);
		if (r == -EBADF) {
			give_up(u);
			r = 0;
		} else if (!r && u->state == UNIT_WITHDRAWN) {
			lib_unit_free(u);
		} else if (!r) {
			lib_set_untold(u, false);
			u->resuming = u->state != UNIT_OFFERED;
		}
	}
	lib_want_room(f, r == -EAGAIN);
	/* its end, which is read; or the kernel has no room for one more message or descriptor
	 * under way (ETOOMANYREFS counts all of this user's, net/core/scm.c) */
	lib_tell_again(f, r && r != -EAGAIN);
}
