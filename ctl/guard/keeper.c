// SPDX-License-Identifier: BSD-2-Clause
/*
 * The keeper: holds what the agent gives it, as systemd's fd store does, starts the agent again when
 * it dies, and gives it back. It looks at nothing that it holds. The agent watches the keeper, and
 * starts another one: both have every descriptor, so that one of them may be killed. See guard.h.
 *
 * Where systemd has started the agent, systemd is the keeper.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "base/log.h"
#include "guard/guard.h"

#define KEPT (KEPT_MAX + KEPT_OWN)
#define NAME 64
#define FIRST 3 /* SD_LISTEN_FDS_START */
#define PAUSE_MS 20 /* before an agent is started again; twice as long each time, */
#define PAUSE_MAX 1000
#define WELL_NS SEC_NS /* until one has lived for so long */

static struct {
	int fd;
	char name[NAME];
} kept[KEPT];
static int n_kept;
static bool stopping; /* the agent says: nothing is guarded any more */

static const char *value_of(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? at + strlen(key) : NULL;
}

static void drop(const char *name)
{
	for (int i = 0; i < n_kept;)
		if (!strcmp(kept[i].name, name)) {
			close(kept[i].fd);
			kept[i] = kept[--n_kept];
		} else {
			i++;
		}
}

static void keep(const char *name, int fd)
{
	if (fd < 0 || n_kept == KEPT) {
		log_error("%s cannot be kept: %s", name, fd < 0 ? "no descriptor came" : "full");
		close_fd(&fd);
		return;
	}
	kept[n_kept].fd = fd;
	snprintf(kept[n_kept++].name, NAME, "%s", name);
}

/* One message of sd_notify(3): the socket is root's to write to. */
static bool receive(int sock)
{
	char text[512], control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { text, sizeof(text) - 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const char *name;
	int fd = -1;

	if (n < 0)
		return false;
	text[n] = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	stopping = stopping || strstr(text, "STOPPING=1");
	name = value_of(text, "FDNAME=");
	if (name)
		text[(size_t)(name - text) + strcspn(name, "\n")] = 0;
	if (name && strstr(text, "FDSTOREREMOVE=1"))
		drop(name);
	else if (name && strstr(text, "FDSTORE=1"))
		keep(name, TAKE_FD(fd));
	close_fd(&fd);
	return true;
}

static int environment(const char *notify)
{
	_cleanup_free_ char *names = calloc(1, (size_t)n_kept * NAME + 1);
	char text[64];

	if (!names)
		return -ENOMEM;
	for (int i = 0; i < n_kept; i++)
		sprintf(names + strlen(names), "%s%s", i ? ":" : "", kept[i].name);
	setenv("LISTEN_FDNAMES", names, 1);
	snprintf(text, sizeof(text), "%d", n_kept);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", getpid());
	setenv("LISTEN_PID", text, 1);
	return setenv("NOTIFY_SOCKET", notify, 1);
}

/* The child: what is kept as 3, 4, 5 ... */
static void become_agent(const char *notify, char **argv)
{
	int above = FIRST + n_kept;

	for (int i = 0; i < n_kept; i++)
		kept[i].fd = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, above);
	for (int i = 0; i < n_kept; i++)
		if (kept[i].fd < 0 || dup2(kept[i].fd, FIRST + i) < 0)
			_exit(1);
	if (environment(notify))
		_exit(1);
	execv("/proc/self/exe", argv);
	_exit(1);
}

static int agent_fd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* argv: ferry-guard --keeper PID --socket PATH --notify NAME, that socket as descriptor 3. */
int keeper_main(int argc, char **argv)
{
	char *agent[] = { argv[0], "--socket", argc == 7 ? argv[4] : NULL, NULL };
	int sock = FIRST, pidfd = argc == 7 ? agent_fd((pid_t)atoi(argv[2])) : -1;
	int pause = PAUSE_MS;
	uint64_t began = 0;
	char self[16];
	pid_t pid;

	if (argc != 7 || fcntl(sock, F_SETFD, FD_CLOEXEC))
		return 2;
	log_open("ferry-keeper");
	snprintf(self, sizeof(self), "%d", getpid());
	setenv("FERRY_KEEPER", self, 1);
	prctl(PR_SET_NAME, "ferry-keeper");
	for (;;) {
		struct pollfd p[] = { { sock, POLLIN, 0 }, { pidfd, POLLIN, 0 } };

		poll(p, pidfd < 0 ? 1 : 2, pidfd < 0 ? PAUSE_MS : -1);
		while (receive(sock))
			;
		if (pidfd >= 0 && !p[1].revents)
			continue;
		if (stopping)
			return 0;
		if (pidfd >= 0)
			waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){}, WEXITED | WNOHANG);
		close_fd(&pidfd);
		pause = boottime_ns() - began > WELL_NS ? PAUSE_MS :
			pause * 2 < PAUSE_MAX           ? pause * 2 :
							  PAUSE_MAX;
		poll(NULL, 0, pause);
		began = boottime_ns();
		pid = fork();
		if (!pid)
			become_agent(argv[6], agent);
		pidfd = pid < 0 ? -1 : agent_fd(pid);
		if (pid > 0)
			log_warning("the agent has ended: started again, with %d descriptors", n_kept);
	}
}

static int start_another(struct daemon *d)
{
	log_warning("the keeper has ended: another one is started");
	unsetenv("FERRY_KEEPER");
	unsetenv("NOTIFY_SOCKET");
	return keeper_start(d);
}

static int on_keeper_gone(sd_event_source *s, int fd, uint32_t events, void *data)
{
	(void)events;
	sd_event_source_disable_unref(s);
	close(fd);
	return start_another(data);
}

static int watch(struct daemon *d, pid_t pid)
{
	int pidfd = agent_fd(pid);

	d->keeper = pid;
	if (pidfd < 0)
		return -errno;
	return sd_event_add_io(d->event, NULL, pidfd, 1 /* EPOLLIN */, on_keeper_gone, d);
}

/* A path beside the agent's socket: an abstract name could be written to by anybody. */
static int notify_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int size = 1 << 20, r;
	mode_t mask = umask(0077);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	unlink(path); /* of a keeper that is no more */
	r = fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) ? -errno : 0;
	umask(mask);
	if (r)
		return r;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	return TAKE_FD(fd);
}

int keeper_start(struct daemon *d)
{
	const char *there = getenv("FERRY_KEEPER");
	_cleanup_close_ int sock = -1;
	char name[sizeof(((struct sockaddr_un *)0)->sun_path)], self[16];
	pid_t pid;

	if (there) {
		pid = (pid_t)atoi(there);
		/* it may have ended since it has started us */
		return getppid() == pid && !(watch(d, pid) < 0) ? 0 : start_another(d);
	}
	if (getenv("NOTIFY_SOCKET")) { /* systemd */
		if (!d->restored)
			store_all(d);
		return 0;
	}
	snprintf(name, sizeof(name), "%s" KEEPER_SUFFIX, d->socket);
	sock = notify_socket(name);
	if (sock < 0)
		return sock;
	snprintf(self, sizeof(self), "%d", getpid());
	pid = fork();
	if (!pid) {
		char *argv[] = { "ferry-guard", "--keeper", self, "--socket", (char *)d->socket,
				 "--notify", name, NULL };

		setsid();
		if (sock == FIRST)
			fcntl(sock, F_SETFD, 0);
		else
			dup2(sock, FIRST);
		if (!close_range(FIRST + 1, ~0U, 0))
			execv("/proc/self/exe", argv);
		_exit(1);
	}
	if (pid < 0)
		return -errno;
	setenv("NOTIFY_SOCKET", name, 1);
	store_all(d);
	return watch(d, pid);
}
