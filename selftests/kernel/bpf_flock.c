// SPDX-License-Identifier: BSD-2-Clause
/*
 * flock() on a directory of the bpf file system is exclusive, and is kept over exec.
 * Relied on: ctl/dataplane/dataplane.c (lock_root: one agent a node).
 * Kernel: fs/locks.c: flock locks belong to the open file; the bpf file system has no say.
 */
#include <sys/file.h>
#include <sys/stat.h>
#include "bpffs.h"

static int try_lock(int *fd)
{
	*fd = open("node", O_RDONLY | O_DIRECTORY);
	need(*fd >= 0);
	return flock(*fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* Holds the lock as another program, which ends when its input does. */
static void hold(int input)
{
	need(dup2(input, 0) == 0);
	execlp("cat", "cat", NULL);
	_exit(1);
}

int main(void)
{
	int held, second, input[2], running[2];
	char c;

	bpffs();
	need(!mkdir("node", 0700));
	rule(!try_lock(&held), "a directory of the bpf file system cannot be locked");
	rule(try_lock(&second) == -EWOULDBLOCK, "a locked directory is locked a second time");
	close(second);
	need(!pipe2(input, O_CLOEXEC) && !pipe2(running, O_CLOEXEC));
	if (!fork())
		hold(input[0]);
	close(held);
	close(running[1]);
	need(read(running[0], &c, 1) == 0); /* closed by exec */
	rule(try_lock(&held) == -EWOULDBLOCK, "the lock is not kept over exec");
	close(held);
	close(input[1]);
	need(wait(NULL) > 0);
	rule(!try_lock(&second), "the lock outlives the last process that had it");
	return 0;
}
