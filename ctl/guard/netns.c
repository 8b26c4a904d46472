// SPDX-License-Identifier: BSD-2-Clause
/* Sockets of other network namespaces; see guard.h. The agent has one thread, which comes back. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include "guard/guard.h"

int netns_socket(int own, int netns, int domain, int type, int protocol)
{
	int fd;

	if (setns(netns, CLONE_NEWNET))
		return -errno;
	fd = socket(domain, type | SOCK_CLOEXEC, protocol);
	if (fd < 0)
		fd = -errno;
	if (setns(own, CLONE_NEWNET))
		abort(); /* nothing that follows would be where it belongs */
	return fd;
}

int netns_cookie(int own, int netns, __u64 *cookie)
{
	_cleanup_close_ int fd = netns_socket(own, netns, AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(*cookie);

	if (fd < 0)
		return fd;
	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &size) ? -errno : 0;
}

int netns_of(int own, pid_t pid, __u64 *cookie)
{
	_cleanup_close_ int fd = -1;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = netns_cookie(own, fd, cookie);
	return r ? r : TAKE_FD(fd);
}
