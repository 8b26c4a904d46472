/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An agent made of a listening UNIX socket, for the tests of libferry: each call sends or expects
 * one message (ferry/app.h). ferry_open() waits for the answer, so that its agent is a thread.
 */
#ifndef FAKE_AGENT_H
#define FAKE_AGENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include <ferry.h>
#include <ferry/app.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct agent {
	int listener, fd;
	char path[64];
	int32_t result; /* of WELCOME */
	int mood;       /* how the greeting goes */
	pthread_t thread;
	struct ferry_app_message m; /* last received */
	struct ferry_app_socket sockets[FERRY_APP_SOCKETS];
	int fds[FERRY_APP_SOCKETS];
	unsigned int n;
};
enum { GOOD, SILENT, CLOSES, SHORT, GARBAGE, MOODS };

static inline unsigned int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline void send_raw(struct agent *a, const void *data, size_t size)
{
	assert_int_equal(send(a->fd, data, size, MSG_NOSIGNAL), size);
}

static inline void say(struct agent *a, uint16_t type, uint32_t id, const char *text)
{
	struct ferry_app_message m = { .type = type, .version = FERRY_APP_VERSION, .id = id };

	memset(m.uuid, 0x55, sizeof(m.uuid));
	snprintf(m.text, sizeof(m.text), "%s", text);
	send_raw(a, &m, sizeof(m));
}

static inline void lend_request(struct agent *a, uint32_t request, uint32_t n)
{
	char buf[FERRY_APP_MESSAGE_MAX] = {};
	struct ferry_app_message *m = (struct ferry_app_message *)buf;

	m->type = FERRY_APP_LEND, m->version = FERRY_APP_VERSION;
	m->id = request, m->count = n;
	for (uint32_t i = 0; i < n; i++) {
		m->sockets[i].family = i % 2 ? AF_INET6 : AF_INET;
		m->sockets[i].type = i % 3 == 2 ? SOCK_DGRAM : SOCK_STREAM;
		snprintf(m->sockets[i].role, sizeof(m->sockets[i].role), "role%u", i);
	}
	send_raw(a, buf, sizeof(*m) + n * sizeof(m->sockets[0]));
}

static inline void drop_fds(struct agent *a)
{
	while (a->n)
		close(a->fds[--a->n]);
}

/* The next message into a->m; its descriptors into a->fds. False: none, or the end. */
static inline bool heard(struct agent *a)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(a->fds))];
	struct iovec iov[2] = { { &a->m, sizeof(a->m) }, { a->sockets, sizeof(a->sockets) } };
	struct msghdr h = { .msg_iov = iov,
			    .msg_iovlen = 2,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(a->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	drop_fds(a);
	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&h) : NULL; c; c = CMSG_NXTHDR(&h, c)) {
		a->n = (unsigned int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(a->fds, CMSG_DATA(c), a->n * sizeof(int));
	}
	return n >= (ssize_t)sizeof(a->m);
}

static inline void expect(struct agent *a, uint16_t type)
{
	if (!heard(a))
		fail_msg("nothing came, %u was awaited", type);
	assert_int_equal(a->m.type, type);
	assert_int_equal(a->m.version, FERRY_APP_VERSION);
}

static inline void *greet(void *arg)
{
	struct agent *a = arg;
	struct ferry_app_message m = { .type = FERRY_APP_WELCOME,
				       .version = FERRY_APP_VERSION,
				       .result = a->result };
	struct pollfd p = { 0, POLLIN, 0 };

	a->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
	p.fd = a->fd;
	if (poll(&p, 1, 3000) != 1 || !heard(a))
		return NULL;
	if (a->mood == GOOD)
		send_raw(a, &m, sizeof(m));
	else if (a->mood == SHORT)
		send_raw(a, &m, sizeof(m) - 1);
	else if (a->mood == GARBAGE)
		say(a, FERRY_APP_GO, 1, "");
	else if (a->mood == CLOSES) {
		close(a->fd);
		a->fd = -1;
	}
	return NULL;
}

static inline void agent_open(struct agent *a)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	memset(a, 0, sizeof(*a));
	a->fd = -1;
	snprintf(a->path, sizeof(a->path), "/tmp/ferry-test-agent-%d", getpid());
	unlink(a->path);
	strcpy(un.sun_path, a->path);
	a->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(a->listener, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(a->listener, 1), 0);
}

static inline void agent_close(struct agent *a)
{
	drop_fds(a);
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	close(a->listener);
	unlink(a->path);
}

static inline int agent_meet(struct agent *a, struct ferry **f, const struct ferry_ops *ops,
			     void *arg)
{
	int r;

	assert_int_equal(pthread_create(&a->thread, NULL, greet, a), 0);
	r = ferry_open(f, a->path, "kind", ops, arg);
	pthread_join(a->thread, NULL);
	return r;
}

/* The agent ends; another one takes its place, and f connects to it. */
static inline void agent_restarts(struct agent *a, struct ferry *f)
{
	struct ferry_app_message m = { .type = FERRY_APP_WELCOME, .version = FERRY_APP_VERSION };
	struct pollfd p = { ferry_fd(f), POLLIN, 0 }, q = { a->listener, POLLIN, 0 };

	drop_fds(a);
	close(a->fd);
	do {
		assert_int_equal(poll(&p, 1, 3000), 1);
		assert_int_equal(ferry_dispatch(f), 0);
	} while (poll(&q, 1, 0) != 1);
	a->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
	expect(a, FERRY_APP_HELLO);
	send_raw(a, &m, sizeof(m));
	assert_int_equal(ferry_dispatch(f), 0);
}

#endif
