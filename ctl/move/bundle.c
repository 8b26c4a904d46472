// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes the bundle (ferry/app.h) into the memfd that the application lent. By write, never by a
 * mapping: the application could cut the file short under it.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include "base/util.h"
#include "move/move.h"

struct writer {
	int fd;
	uint64_t at;
	int error;
};

static void put(struct writer *w, const void *data, size_t size)
{
	for (size_t done = 0; !w->error && done < size;) {
		ssize_t n = pwrite(w->fd, (const char *)data + done, size - done,
				   (off_t)(w->at + done));

		if (n <= 0)
			w->error = n ? -errno : -EIO;
		else
			done += (size_t)n;
	}
	w->at += size;
}

static void put_datagrams(struct writer *w, const struct repair_image *image,
			  struct ferry_bundle_socket *s)
{
	w->at = (w->at + 7) & ~7ULL;
	s->datagrams_at = w->at;
	for (const struct datagram *d = image->datagrams; d; d = d->next) {
		struct ferry_bundle_datagram head = { .port = d->port, .size = (uint32_t)d->size };

		memcpy(head.from, d->from, 16);
		put(w, &head, sizeof(head));
		put(w, d->data, d->size);
		w->at = (w->at + 7) & ~7ULL;
		s->datagrams++;
	}
}

int bundle_write(const struct move *m)
{
	struct ferry_bundle head = {
		.count = m->count,
		.state_size = m->state_size,
	};
	struct ferry_bundle_socket sockets[FERRY_APP_SOCKETS] = {};
	struct writer w = { .fd = m->bundle };

	memcpy(head.uuid, m->uuid, 16);
	memcpy(head.move_id, m->id, 16);
	put(&w, &head, sizeof(head)); /* a second time: not whole until it is */
	w.at = sizeof(head) + m->count * sizeof(sockets[0]);
	head.state_at = w.at;
	put(&w, m->state, m->state_size);
	for (unsigned int i = 0; i < m->count; i++) {
		const struct repair_image *image = &m->images[i];
		struct ferry_bundle_socket *s = &sockets[i];

		memcpy(s->role, image->role, sizeof(s->role));
		s->unsent = image->unsent;
		s->unsent_at = w.at;
		s->buf_lock = image->buf_lock;
		s->keepalive = image->keepalive;
		s->user_timeout = image->user_timeout;
		s->reuseaddr = image->reuseaddr;
		s->peek_off = image->peek_off;
		if (image->unsent)
			put(&w, image->send + image->outq - image->unsent, image->unsent);
		if (image->datagrams)
			put_datagrams(&w, image, s);
	}
	w.at = sizeof(head);
	put(&w, sockets, m->count * sizeof(sockets[0]));
	w.at = 0;
	head.magic = FERRY_BUNDLE_MAGIC;
	put(&w, &head, sizeof(head));
	return w.error;
}
