// SPDX-License-Identifier: BSD-2-Clause
/*
 * /run/ferry, where the UNIX sockets are unless --socket says otherwise. Several nodes share it, so
 * that the directory itself says by an extended attribute that an agent made it; whichever node is
 * taken off last removes it. One that a package or a person made has no such mark and stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "agent/detach.h"
#include "base/log.h"
#include "base/util.h"

#define RUN_DIR "/run/ferry"
#define MADE "trusted.ferry.made"

static void take(const struct rights_user *user)
{
	/* the mark takes CAP_SYS_ADMIN: who is not root leaves the directory to who made way */
	if (geteuid())
		return;
	if (setxattr(RUN_DIR, MADE, "1", 1, 0))
		log_warning("cannot mark " RUN_DIR " as made here, it will stay: %s",
			    strerror(errno));
	if (give_away(AT_FDCWD, RUN_DIR, S_IFDIR, user->uid, user->gid))
		log_warning("cannot give " RUN_DIR " to user %u", user->uid);
}

void run_dir_make(const struct rights_user *user)
{
	mode_t mask = umask(022);

	if (!mkdir(RUN_DIR, 0755))
		take(user);
	else if (errno != EEXIST)
		log_warning("cannot make " RUN_DIR ": %s", strerror(errno));
	umask(mask);
}

void run_dir_remove(void)
{
	if (getxattr(RUN_DIR, MADE, NULL, 0) > 0)
		rmdir(RUN_DIR); /* not while another node's socket is in it */
}
