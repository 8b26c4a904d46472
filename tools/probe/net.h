/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every probe needs of the system: a small epoll loop, sockets by address text, the clock,
 * and windows of time in which nothing is read. No policy, no output.
 *
 * A source lives in its owner's object. Who handles an event may close any source, but must not
 * free it before loop_wait() returns: later events of the same round may still name it.
 *
 * Invariant: source.events is what the kernel watches; 0 means not in the epoll set.
 */
#ifndef PROBE_NET_H
#define PROBE_NET_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define NSEC_PER_SEC 1000000000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NEVER UINT64_MAX

struct source {
	int fd; /* -1: closed */
	uint32_t events;
	void (*ready)(struct source *s, uint32_t events);
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* CLOCK_BOOTTIME in ns. */
uint64_t now_ns(void);

/* As many descriptors as this process may have at all. */
void raise_file_limit(void);

/* An epoll descriptor or -errno. */
int loop_open(void);
/* Watch for exactly these events (0: none); no system call when nothing changes. 0 or -errno. */
int loop_watch(int loop, struct source *s, uint32_t events);
/* Handle what is ready; wait for it until the time `until` at most. 0 or -errno. */
int loop_wait(int loop, uint64_t until);
/* Stops the watch and closes the descriptor. */
void source_close(int loop, struct source *s);

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* "192.0.2.1" or "2001:db8::1"; 0 or -EINVAL. */
int address_parse(union address *a, const char *text, uint16_t port);
void address_set_port(union address *a, uint16_t port);
socklen_t address_size(const union address *a);
#define ADDRESS_TEXT 64
/* "192.0.2.1:80" or "[2001:db8::1]:80" */
const char *address_text(const union address *a, char out[ADDRESS_TEXT]);
/* Non-blocking, close-on-exec sockets, or -errno. */
int tcp_listen(const union address *a);
int udp_bind(const union address *a, int reuse);
int set_int(int fd, int level, int name, int value);

/* Of every `every` ns the first `length` are a pause. */
struct pause {
	uint64_t length, every;
};

/* "40/200": ms; 0 or -EINVAL. */
int pause_parse(struct pause *p, const char *text);
int pause_is_on(const struct pause *p, uint64_t now);
/* When it begins or ends next; NEVER without pauses. */
uint64_t pause_edge(const struct pause *p, uint64_t now);

/* Digits only, at most max; 0 or -EINVAL. */
int number_parse(uint64_t *out, const char *text, uint64_t max);

#endif
