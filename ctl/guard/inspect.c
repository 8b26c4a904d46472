// SPDX-License-Identifier: BSD-2-Clause
/* What a process listens on, found in its descriptors; see guard.h. */
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "guard/guard.h"

static int flag(int fd, int level, int name)
{
	int value = 0;
	socklen_t size = sizeof(value);

	return getsockopt(fd, level, name, &value, &size) ? -errno : value;
}

int inspect_fd(int fd, pid_t pid, struct listener *l)
{
	socklen_t eight = sizeof(uint64_t);
	struct stat st;

	memset(l, 0, sizeof(*l));
	l->fd = -1;
	l->pid = pid;
	l->size = sizeof(l->addr);
	if (flag(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP ||
	    flag(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1)
		return -EINVAL;
	if (getsockname(fd, (struct sockaddr *)&l->addr, &l->size) || fstat(fd, &st) ||
	    getsockopt(fd, SOL_SOCKET, SO_COOKIE, &l->cookie, &eight) ||
	    getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &l->netns, &eight))
		return -errno;
	l->uid = st.st_uid;
	l->inode = st.st_ino;
	l->reuse = flag(fd, SOL_SOCKET, SO_REUSEPORT) == 1;
	l->device = (uint32_t)flag(fd, SOL_SOCKET, SO_BINDTOIFINDEX);
	l->v6only = l->addr.ss_family == AF_INET6 && flag(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1;
	return 0;
}

/* What is no UTF-8, as a name that the kernel has cut within a character, JSON has no text for. */
static void make_plain(char *text)
{
	json_t *s = json_string(text);

	for (char *at = text; !s && *at; at++)
		if (*at & 0x80)
			*at = '?';
	json_decref(s);
}

void inspect_comm(pid_t pid, char comm[COMM])
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (!f || !fgets(comm, COMM, f))
		snprintf(comm, COMM, "?");
	comm[strcspn(comm, "\n")] = 0;
	make_plain(comm);
	if (f)
		fclose(f);
}

int inspect_program(pid_t pid, char path[PATH])
{
	static const char gone[] = " (deleted)";
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	n = readlink(link, path, PATH - 1);
	if (n < 0)
		return -errno;
	path[n] = 0;
	/* as it was before its package was upgraded, and will be after the restart */
	if ((size_t)n > strlen(gone) && !strcmp(path + n - strlen(gone), gone))
		path[(size_t)n - strlen(gone)] = 0;
	make_plain(path);
	return 0;
}

pid_t inspect_parent(pid_t pid)
{
	char path[64], line[128];
	int parent = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "PPid: %d", &parent) != 1)
		;
	if (f)
		fclose(f);
	return parent;
}

uint16_t listener_port_of(const struct listener *l)
{
	return ntohs(l->addr.ss_family == AF_INET6 ?
			     ((const struct sockaddr_in6 *)&l->addr)->sin6_port :
			     ((const struct sockaddr_in *)&l->addr)->sin_port);
}

/* The inode of a descriptor's socket; 0: it is none. */
static unsigned long socket_of(int dir, const char *name)
{
	char target[64];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	unsigned long inode;

	if (n < 0)
		return 0;
	target[n] = 0;
	return sscanf(target, "socket:[%lu]", &inode) == 1 ? inode : 0;
}

bool inspect_is_kept(const struct listener *l)
{
	char comm[COMM];
	struct dirent *e;
	bool found = false;
	DIR *d;

	inspect_comm(1, comm);
	if (l->pid == 1 || strcmp(comm, "systemd"))
		return false;
	d = opendir("/proc/1/fd");
	while (d && !found && (e = readdir(d)))
		found = socket_of(dirfd(d), e->d_name) == l->inode;
	if (d)
		closedir(d);
	return found;
}

int inspect(pid_t pid, uint32_t port, int (*found)(struct listener *l, void *data), void *data)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64];
	struct dirent *e;
	int n = 0, r = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = pidfd < 0 ? NULL : opendir(path);
	if (!d)
		return -errno;
	while (r >= 0 && (e = readdir(d))) {
		_cleanup_close_ int fd = -1;
		struct listener l;

		if (e->d_name[0] == '.' || !socket_of(dirfd(d), e->d_name))
			continue;
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, atoi(e->d_name), 0);
		if (fd < 0 && errno == EPERM)
			r = -EPERM;
		if (fd < 0 || inspect_fd(fd, pid, &l) || (port && listener_port_of(&l) != port))
			continue;
		inspect_comm(pid, l.comm);
		l.fd = TAKE_FD(fd);
		r = found(&l, data);
		close_fd(&l.fd);
		n++;
	}
	closedir(d);
	return r < 0 ? r : n;
}

const char *listener_text(const struct listener *l, char text[LISTENER_TEXT])
{
	char addr[ADDR_TEXT];
	uint8_t a[16];
	uint16_t port;

	if (addr_from_sockaddr(&l->addr, a, &port)) {
		snprintf(text, LISTENER_TEXT, "?");
		return text;
	}
	addr_text(a, addr);
	if (l->addr.ss_family == AF_INET6)
		snprintf(text, LISTENER_TEXT, "[%s]:%u%s", addr, ntohs(port), l->v6only ? "" : " (and IPv4)");
	else
		snprintf(text, LISTENER_TEXT, "%s:%u", addr, ntohs(port));
	return text;
}

bool listener_wanted(const struct listener *l, const json_t *ports)
{
	json_t *port;
	size_t i;

	json_array_foreach(ports, i, port)
		if (json_integer_value(port) == listener_port_of(l))
			return true;
	return !json_array_size(ports);
}

bool listener_same(const struct listener *a, const struct listener *b)
{
	return a->size == b->size && !memcmp(&a->addr, &b->addr, a->size) &&
	       a->v6only == b->v6only && a->device == b->device && a->netns == b->netns && a->uid == b->uid;
}
