/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs here share. Each shows one rule of the kernel that ferry relies on: its first
 * comment says the rule, where ferry relies on it and where the kernel has it. It exits 0 where the
 * rule holds; where it does not, or cannot be shown, it exits 1 with one sentence, and prints
 * nothing else. Each runs as root in a network namespace of its own, with nothing but lo (MTU
 * 1500), on one processor: what was sent over lo before a datagram has arrived before that.
 */
#ifndef RULE_H
#define RULE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define ESTABLISHED 1 /* tcpi_state, include/net/tcp_states.h */
#define CLOSED 7
/* TCP option kinds, as struct tcp_repair_opt has them */
#define OPT_MSS 2
#define OPT_WINDOW 3
#define OPT_SACK 4
#define OPT_TIMESTAMP 8
/* octet 13 of the TCP header */
#define FIN 0x01
#define RST 0x04
#define ANY 0x00

static const char *rule_family = "";

/* Ends the program where the rule does not hold; the text says what was seen. */
#define rule(truth, ...)                                                                           \
	do {                                                                                       \
		if (!(truth))                                                                      \
			rule_broken(__VA_ARGS__);                                                  \
	} while (0)
/* The same where the rule could not be asked for. */
#define need(truth)                                                                                \
	do {                                                                                       \
		if (!(truth))                                                                      \
			rule_broken("cannot be shown: %s (line %d): %s", #truth, __LINE__,         \
				    strerror(errno));                                              \
	} while (0)
/* Looks every millisecond; whether it came true within ten seconds. */
#define until(truth)                                                                               \
	({                                                                                         \
		uint64_t end_ = now_ms() + 10000;                                                  \
		bool true_;                                                                        \
		while (!(true_ = (truth)) && now_ms() < end_)                                      \
			poll(NULL, 0, 1);                                                          \
		true_;                                                                             \
	})

__attribute__((format(printf, 1, 2), noreturn)) static inline void rule_broken(const char *text,
									       ...)
{
	va_list args;

	va_start(args, text);
	printf("%s", rule_family);
	vprintf(text, args);
	printf("\n");
	exit(1);
}

static inline uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static inline void new_namespace(void)
{
	struct ifreq mtu = { .ifr_name = "lo", .ifr_mtu = 1500 };
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	need(!unshare(CLONE_NEWNET));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	need(fd >= 0 && !ioctl(fd, SIOCSIFMTU, &mtu) && !ioctl(fd, SIOCSIFFLAGS, &up) &&
	     !close(fd));
}

static inline void begin(void)
{
	int cpu = sched_getcpu();
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	need(!sched_setaffinity(0, sizeof(one), &one));
	signal(SIGPIPE, SIG_IGN);
	new_namespace();
}

/* The rights that this process has from here on: a bit a capability below 32. */
static inline void keep(uint32_t rights)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { { rights, rights, 0 } };

	need(!syscall(SYS_capset, &h, d));
}

static inline int for_each_family(void (*shown)(int family))
{
	begin();
	rule_family = "IPv4: ";
	shown(AF_INET);
	rule_family = "IPv6: ";
	shown(AF_INET6);
	return 0;
}

/* 0 or -errno; get returns the value. */
static inline int set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

static inline int get(int fd, int level, int name)
{
	int value = 0;
	socklen_t size = sizeof(value);

	return getsockopt(fd, level, name, &value, &size) ? -errno : value;
}

static inline int set_tcp(int fd, int name, int value)
{
	return set(fd, IPPROTO_TCP, name, value);
}

static inline int ask(int fd, unsigned long request)
{
	int n = -1;

	return ioctl(fd, request, &n) ? -errno : n;
}

static inline struct tcp_info info(int fd)
{
	struct tcp_info i = {};
	socklen_t size = sizeof(i);

	need(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size));
	return i;
}

/* The family's loopback address; a port in host order. */
struct name {
	union {
		struct sockaddr sa;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t size;
};

static inline struct name loopback(int family, int port)
{
	struct name n = { .size = family == AF_INET ? sizeof(n.v4) : sizeof(n.v6) };

	if (family == AF_INET)
		n.v4 = (struct sockaddr_in){ .sin_family = AF_INET,
					     .sin_port = htons((uint16_t)port),
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	else
		n.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6,
					      .sin6_port = htons((uint16_t)port),
					      .sin6_addr = in6addr_loopback };
	return n;
}

static inline int bind_to(int fd, int family, int port)
{
	struct name n = loopback(family, port);

	return bind(fd, &n.sa, n.size) ? -errno : 0;
}

static inline int connect_to(int fd, int family, int port)
{
	struct name n = loopback(family, port);

	return connect(fd, &n.sa, n.size) ? -errno : 0;
}

static inline int disconnect(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	return connect(fd, &none, sizeof(none)) ? -errno : 0;
}

static inline int port_of(int fd)
{
	struct sockaddr_in6 a; /* the port is where it is in sockaddr_in */
	socklen_t size = sizeof(a);

	need(!getsockname(fd, (struct sockaddr *)&a, &size));
	return ntohs(a.sin6_port);
}

/* Two ends of a connection, not blocking. */
struct pair {
	int listener, client, server;
};

static inline struct pair connected(int family)
{
	struct pair p = { socket(family, SOCK_STREAM, 0), socket(family, SOCK_STREAM, 0), -1 };

	need(!bind_to(p.listener, family, 0) && !listen(p.listener, 8));
	need(!connect_to(p.client, family, port_of(p.listener)));
	p.server = accept(p.listener, NULL, NULL);
	need(p.server >= 0 && !fcntl(p.server, F_SETFL, O_NONBLOCK) &&
	     !fcntl(p.client, F_SETFL, O_NONBLOCK));
	return p;
}

static inline void end(struct pair *p)
{
	close(p->client);
	close(p->server);
	close(p->listener);
}

static inline int freeze(int fd)
{
	return set_tcp(fd, TCP_REPAIR, TCP_REPAIR_ON);
}

/* A socket in repair, connected by it from port 7001 to port 7002, where nobody is. */
static inline int restored(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);

	need(fd >= 0 && !freeze(fd) && !bind_to(fd, family, 7001) && !connect_to(fd, family, 7002));
	return fd;
}

/* Takes nothing that arrives from here on: what a fence is to a socket. */
static inline void deafen(int fd)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { 1, &nothing };

	need(!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)));
}

/* Returns when all that was sent over lo has arrived. */
static inline void settle(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct pollfd p = { fd, POLLIN, 0 };

	need(fd >= 0 && !bind_to(fd, AF_INET, 0) && !connect_to(fd, AF_INET, port_of(fd)));
	need(send(fd, "", 1, 0) == 1 && poll(&p, 1, 10000) == 1);
	close(fd);
}

/* Sees the TCP packets of this namespace, from when it is made. */
static inline int witness(int family)
{
	int fd = socket(family, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_TCP);

	need(fd >= 0);
	return fd;
}

/* How many the witness has seen since it was asked last, from this port, with all these flags. */
static inline int seen(int fd, int family, int port, uint8_t flags)
{
	uint8_t packet[65536];
	int count = 0;
	ssize_t n;

	settle();
	while ((n = recv(fd, packet, sizeof(packet), 0)) > 0) {
		const uint8_t *t = packet + (family == AF_INET ? (packet[0] & 15) * 4 : 0);

		count += (t[0] << 8 | t[1]) == port && (t[13] & flags) == flags;
	}
	return count;
}

/* Passes a descriptor over a UNIX socket. */
union descriptor {
	struct cmsghdr h;
	char room[CMSG_SPACE(sizeof(int))];
};

static inline void give(int through, int fd)
{
	union descriptor d = { .h = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec io = { (char[1]){ 0 }, 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &d,
			    .msg_controllen = sizeof(d) };

	memcpy(CMSG_DATA(&d.h), &fd, sizeof(fd));
	need(sendmsg(through, &m, 0) == 1);
}

static inline int take(int through)
{
	union descriptor d;
	struct iovec io = { (char[1]){ 0 }, 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &d,
			    .msg_controllen = sizeof(d) };
	int fd;

	need(recvmsg(through, &m, 0) == 1 && m.msg_controllen >= CMSG_LEN(sizeof(int)));
	memcpy(&fd, CMSG_DATA(&d.h), sizeof(fd));
	return fd;
}

#endif
