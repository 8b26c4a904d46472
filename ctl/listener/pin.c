// SPDX-License-Identifier: BSD-2-Clause
/*
 * A ledger's directory: LEDGER_ROOT/NAME with `rows` and `totals`, locked (flock) by the process
 * that counts. See ledger.h.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "base/util.h"
#include "listener/ledger.h"
#include "listener/pin.h"

#define LOCK_TRIES 100 /* each 10 ms: a reader has the lock for a moment */
#define PATH 192

static int fail(struct ledger *l, int r, const char *what)
{
	snprintf(l->error, sizeof(l->error),
		 "%s %s: %s; root may, where a bpf file system is at /sys/fs/bpf (mount -t bpf bpf "
		 "/sys/fs/bpf)",
		 what, l->dir, strerror(-r));
	return r;
}

int pin_lock(struct ledger *l, const char *name)
{
	int r = 0;

	snprintf(l->dir, sizeof(l->dir), "%s/%s", LEDGER_ROOT, name);
	if ((mkdir(LEDGER_ROOT, 0711) && errno != EEXIST) ||
	    (mkdir(l->dir, 0700) && errno != EEXIST))
		return fail(l, -errno, "cannot make");
	l->lock = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->lock < 0)
		return fail(l, -errno, "cannot open");
	for (int i = 0; i < LOCK_TRIES; i++) {
		r = flock(l->lock, LOCK_EX | LOCK_NB) ? -errno : 0;
		if (r != -EWOULDBLOCK)
			break;
		poll(NULL, 0, 10);
	}
	if (r != -EWOULDBLOCK)
		return r ? fail(l, r, "cannot lock") : 0;
	close_fd(&l->lock);
	snprintf(l->error, sizeof(l->error),
		 "another process keeps the ledger '%s': read it (ferry watch show --name %s), or "
		 "take another --name",
		 name, name);
	return -EBUSY;
}

/* A reader finds the old one or the new one. */
static int replace(const struct ledger *l, const char *name, int map)
{
	char path[PATH], fresh[PATH];

	snprintf(path, sizeof(path), "%s/%s", l->dir, name);
	snprintf(fresh, sizeof(fresh), "%s/%s_new", l->dir, name);
	if (unlink(fresh) && errno != ENOENT)
		return -errno;
	return bpf_obj_pin(map, fresh) || rename(fresh, path) ? -errno : 0;
}

int pin_maps(struct ledger *l, int rows, int totals)
{
	int r = replace(l, "rows", rows);

	r = r ? r : replace(l, "totals", totals);
	return r ? fail(l, r, "cannot pin in") : 0;
}

static int pinned(const char *name, const char *map, uint32_t value_size)
{
	struct bpf_map_info info = {};
	uint32_t size = sizeof(info);
	char path[PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", LEDGER_ROOT, name, map);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return -errno;
	if (bpf_obj_get_info_by_fd(fd, &info, &size) || info.value_size != value_size) {
		close(fd);
		return -EPROTO; /* of another version */
	}
	return fd;
}

int ledger_view(const char *name, struct ledger_view *v)
{
	_cleanup_close_ int totals = pinned(name, "totals", sizeof(v->state)), dir = -1;
	char path[PATH];
	uint32_t zero = 0;

	v->rows = -1;
	if (totals < 0)
		return totals;
	snprintf(path, sizeof(path), "%s/%s", LEDGER_ROOT, name);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	/* asked before the counts are read: they are at least as new as the answer */
	v->watching = flock(dir, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	if (bpf_map_lookup_elem(totals, &zero, &v->state))
		return -errno;
	if (v->state.layout != WITNESS_LAYOUT)
		return -EPROTO;
	v->since = v->state.ended ? v->state.ended : v->state.alive;
	v->rows = pinned(name, "rows", sizeof(struct witness_close));
	return v->rows < 0 ? v->rows : 0;
}

int ledger_view_rows(const struct ledger_view *v, ledger_visit visit, void *data)
{
	struct witness_key key, next;
	struct witness_close row;

	for (int end = bpf_map_get_next_key(v->rows, NULL, &next); !end;
	     end = bpf_map_get_next_key(v->rows, &key, &next)) {
		key = next;
		if (!bpf_map_lookup_elem(v->rows, &key, &row))
			visit(&row, data);
	}
	return errno == ENOENT ? 0 : -errno;
}

void ledger_view_close(struct ledger_view *v)
{
	close_fd(&v->rows);
}
