// SPDX-License-Identifier: BSD-2-Clause
/*
 * The pin directory of a node: made, locked for life, and given to the user that the agent becomes.
 * Knows nothing of what is pinned.
 * Invariant: once it is locked, pins are reached through its descriptor. So the process may become
 * a user that cannot get to /sys/fs/bpf, and may hand the descriptor on to the one that follows it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include "base/util.h"
#include "dataplane/dataplane.h"
#include "dataplane/maps.h"

const char *pin_path(const struct dataplane *d, const char *name, char path[PIN_PATH])
{
	snprintf(path, PIN_PATH, "%s/%s", d->pins, name);
	return path;
}

#define LOCK_TRIES 100 /* another node, or this one, may be taken off while we come */

int check_bpffs(void)
{
	struct statfs fs;

	if (!statfs("/sys/fs/bpf", &fs) && fs.f_type == BPF_FS_MAGIC)
		return 0;
	return dataplane_fail(-ENODEV, "/sys/fs/bpf is not a bpf file system: mount -t bpf bpf "
				       "/sys/fs/bpf (ip netns exec hides it: use nsenter --net)");
}

/* -EAGAIN: it was taken away meanwhile. */
static int lock(struct dataplane *d)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(d->lock, &fs) || fs.f_type != BPF_FS_MAGIC)
		return dataplane_fail(-EINVAL, "descriptor %d is no directory of a bpf file system",
				      d->lock);
	if (flock(d->lock, LOCK_EX | LOCK_NB))
		return dataplane_fail(-EBUSY, "%s is locked: another agent of this node is running",
				      d->root);
	if (!fstat(d->lock, &st) && st.st_nlink)
		return 0;
	close_fd(&d->lock);
	return -EAGAIN;
}

static int try_lock(struct dataplane *d)
{
	d->lock = open(d->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->lock >= 0)
		return lock(d);
	return errno == ENOENT ? -EAGAIN :
				 dataplane_fail(-errno, "cannot open %s: %s; is it the agent's user's?",
						d->root, strerror(errno));
}

/* The directory above can be passed through by all: who is not root gets to what it owns. */
static int make_and_lock(struct dataplane *d)
{
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < LOCK_TRIES; i++) {
		if ((!mkdir(PIN_ROOT, 0711) || errno == EEXIST || errno == EACCES) &&
		    (!mkdir(d->root, 0700) || errno == EEXIST))
			r = try_lock(d);
		else if (errno != ENOENT)
			r = dataplane_fail(-errno,
					   "cannot make %s: %s; start as root, or make it "
					   "beforehand, the agent's user's, with a way to it",
					   d->root, strerror(errno));
	}
	return r == -EAGAIN ? dataplane_fail(r, "cannot make %s: it is taken away again and again",
					     d->root) :
			      r;
}

int lock_root(struct dataplane *d, int pins)
{
	int r = pins > 0 ? 0 : check_bpffs();

	if (r)
		return r;
	if (pins > 0) {
		d->lock = pins;
		r = lock(d);
	} else if (pins == LOCK_IF_THERE) {
		r = try_lock(d);
		r = r == -EAGAIN ? -ENOENT : r;
	} else {
		r = make_and_lock(d);
	}
	if (r)
		return r;
	snprintf(d->pins, sizeof(d->pins), "/proc/self/fd/%d", d->lock);
	return 0;
}

int dataplane_own(struct dataplane *d, uid_t uid, gid_t gid)
{
	DIR *dir = opendir(d->pins);
	int r = dir ? 0 : -errno;

	for (struct dirent *e; !r && dir && (e = readdir(dir));)
		if (e->d_name[0] != '.')
			r = give_away(d->lock, e->d_name, S_IFREG, uid, gid);
	if (dir)
		closedir(dir);
	if (!r && fchown(d->lock, uid, gid))
		r = -errno;
	return r ? dataplane_fail(r, "cannot give the pins in %s to user %u: %s", d->root, uid,
				  strerror(-r)) :
		   0;
}
