// SPDX-License-Identifier: BSD-2-Clause
/*
 * Linux before 6.1.175, 6.6.140, 6.12.86 and 6.18.27 does not wake who waits for a listener when a
 * connection moves to it (CVE-2026-46015): its client waits until another one comes. There a
 * connection of ours comes, which says nothing and ends. Whether it is needed is tried, not read from a
 * version. See guard.h.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include "base/fault.h"
#include "base/log.h"
#include "guard/guard.h"
#include "listener.skel.h"

#define WAKE_MS 100 /* in which who waits has woken */
#define CONNECT_MS 100
#define TRIAL_PORT 1 /* of a network namespace of its own */

enum { WAKES, FORGETS, UNKNOWN };

static int up_loopback(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return ioctl(fd, SIOCSIFFLAGS, &r);
}

static struct sockaddr_in trial_address(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(TRIAL_PORT),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int trial_listener(void)
{
	const struct sockaddr_in a = trial_address();
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
	    bind(fd, (const struct sockaddr *)&a, sizeof(a)) || listen(fd, 8))
		return -1;
	return fd;
}

/* Edge-triggered: ready only where somebody was woken. In a process that ends with it. */
static int trial(void)
{
	struct listener_bpf *b = listener_bpf__open_and_load();
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int from, to, client, epoll = epoll_create1(0), program;
	const struct sockaddr_in a = trial_address();
	uint32_t zero = 0; /* a group without members: its holder is that in slot 0 */
	uint64_t value;

	if (!b || unshare(CLONE_NEWNET) || up_loopback())
		return UNKNOWN;
	program = bpf_program__fd(b->progs.listener);
	from = trial_listener();
	client = socket(AF_INET, SOCK_STREAM, 0);
	if (from < 0 || connect(client, (const struct sockaddr *)&a, sizeof(a)))
		return UNKNOWN;
	to = trial_listener();
	value = (uint64_t)to;
	if (to < 0 || bpf_map_update_elem(bpf_map__fd(b->maps.socks), &zero, &value, BPF_ANY) ||
	    setsockopt(from, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, to, &event))
		return UNKNOWN;
	close(from);
	if (epoll_wait(epoll, &event, 1, WAKE_MS) == 1)
		return WAKES;
	return accept(to, NULL, NULL) < 0 ? UNKNOWN : FORGETS; /* it did move */
}

bool wake_is_forgotten(void)
{
	int status = -1;
	pid_t pid;

	if (fault(FAULT_FORGETS))
		return true;
	pid = fork();
	if (!pid)
		_exit(trial());
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == UNKNOWN)
		log_warning("whether the kernel wakes who is given a connection could not be tried; it "
			    "is taken to");
	return WIFEXITED(status) && WEXITSTATUS(status) == FORGETS;
}

/* Where the group's listeners can be reached from its own machine. */
static struct sockaddr_storage reachable(const struct listener *l)
{
	struct sockaddr_storage a = l->addr;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a;

	if (a.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY))
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (a.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
		v6->sin6_addr = in6addr_loopback;
	return a;
}

/* The port that it will come from, in network order; 0: none. */
static uint16_t bound_port(int fd, sa_family_t family)
{
	struct sockaddr_storage a = { .ss_family = family };
	struct listener l = {};

	l.size = sizeof(l.addr);
	if (bind(fd, (struct sockaddr *)&a,
		 family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) ||
	    getsockname(fd, (struct sockaddr *)&l.addr, &l.size))
		return 0;
	return htons(listener_port_of(&l));
}

/* Whether it has come there. */
static bool wake(struct group *g, uint32_t slot)
{
	const struct guard *guard = g->guard;
	struct sockaddr_storage to = reachable(&g->like);
	_cleanup_close_ int fd = netns_socket(guard->d->netns, guard->netns, to.ss_family,
					      SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	uint16_t port = fd < 0 ? 0 : bound_port(fd, to.ss_family);
	bool came;

	if (!port)
		return false;
	g->view->kick_slot = slot;
	__atomic_store_n(&g->view->kick_port, port, __ATOMIC_RELEASE);
	came = !connect(fd, (struct sockaddr *)&to, g->like.size) ||
	       (errno == EINPROGRESS && poll(&p, 1, CONNECT_MS) == 1 && !(p.revents & POLLERR));
	__atomic_store_n(&g->view->kick_port, 0, __ATOMIC_RELEASE);
	return came;
}

/* A backlog of 0 is one place, which would be for ours alone: it becomes 1. */
void wake_make_room(const struct listener *l)
{
	struct tcp_info i = {}; /* of a listener: sacked is its backlog */
	socklen_t size = sizeof(i);

	if (!getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &i, &size) && !i.tcpi_sacked)
		listen(l->fd, 1);
}

static bool is_needed(const struct group *g)
{
	return g->guard->d->forgets && !fault(FAULT_NO_WAKE);
}

/* Once for what has moved, or again at the next look where that has failed. A full queue wakes nobody
 * more; what moves leaves a place free there, so who has filled it came by a SYN, which has woken. */
void wake_all(struct group *g)
{
	if (!is_needed(g))
		return;
	for (uint32_t i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		struct member *m = &g->members[i];

		if (!m->cookie || !m->asleep || !m->queued)
			continue;
		m->asleep = m->queued <= m->backlog && !wake(g, i);
	}
}

/* Nothing comes to a full queue: it is a longer one meanwhile. */
static void wake_beyond(struct group *g, uint32_t slot, const struct listener *l)
{
	struct member *m = &g->members[slot];

	if (!m->asleep || !m->queued)
		return;
	m->asleep = false;
	listen(l->fd, INT32_MAX);
	wake(g, slot);
	listen(l->fd, (int)m->backlog);
}

void wake_at_end(struct group *g)
{
	if (!g->view || !is_needed(g))
		return;
	group_refresh(g);
	scan_members(g, wake_beyond);
}
