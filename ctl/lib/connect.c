// SPDX-License-Identifier: BSD-2-Clause
/* libferry: registration with the agent, the one thing that waits, and its end. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "lib.h"

#define OPEN_TIMEOUT_MS 2000
#define RUN "/run/ferry"

/* The socket of the only agent on this machine; NULL where there is none, or more than one. */
static const char *only_agent(char *path, size_t size)
{
	DIR *dir = opendir(RUN);
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		size_t length = strlen(e->d_name);

		if (length < 6 || strcmp(e->d_name + length - 5, ".sock"))
			continue;
		snprintf(path, size, RUN "/%s", e->d_name);
		n++;
	}
	if (dir)
		closedir(dir);
	return n == 1 ? path : NULL;
}

static int connect_agent(struct ferry *f, const char *path)
{
	struct timeval wait = { .tv_sec = OPEN_TIMEOUT_MS / 1000 };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char only[sizeof(RUN) + 256];

	if (!path)
		path = getenv("FERRY_SOCKET");
	if (!path)
		path = only_agent(only, sizeof(only));
	if (!path)
		return -ENOENT;
	if (strlen(path) >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	strcpy(un.sun_path, path);
	f->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	/* connect() waits where the agent does not accept */
	if (f->fd < 0 || setsockopt(f->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
		return -errno;
	if (connect(f->fd, (struct sockaddr *)&un, sizeof(un)))
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return 0;
}

static int greet(struct ferry *f, const char *kind)
{
	struct ferry_app_message m = { .type = FERRY_APP_HELLO, .version = FERRY_APP_VERSION };
	struct pollfd p = { f->fd, POLLIN, 0 };
	int r;

	snprintf(m.text, sizeof(m.text), "%s", kind);
	r = lib_send(f, &m, sizeof(m), NULL, 0);
	if (r)
		return r;
	if (poll(&p, 1, OPEN_TIMEOUT_MS) != 1)
		return -ETIMEDOUT;
	if (recv(f->fd, &m, sizeof(m), MSG_DONTWAIT) != sizeof(m) || m.type != FERRY_APP_WELCOME ||
	    m.result > 0)
		return -EPROTO;
	return m.result;
}

int ferry_open(struct ferry **ret, const char *path, const char *kind, const struct ferry_ops *ops,
	       void *arg)
{
	struct ferry *f;
	int r;

	if (!ops || !ops->arrived || !kind || !*kind || strlen(kind) > FERRY_KIND_MAX)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->fd = -1;
	f->ops = ops;
	f->arg = arg;
	r = connect_agent(f, path);
	r = r ? r : greet(f, kind);
	if (r) {
		ferry_close(f);
		return r;
	}
	*ret = f;
	return 0;
}

void ferry_close(struct ferry *f)
{
	if (!f)
		return;
	while (f->units) {
		if (f->units->state == UNIT_LENT)
			lib_discard(f->units);
		else
			lib_unit_free(f->units);
	}
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

int ferry_fd(const struct ferry *f)
{
	return f->fd;
}
