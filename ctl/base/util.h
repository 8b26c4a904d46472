/* SPDX-License-Identifier: BSD-2-Clause */
/* Small things everything uses: cleanup by attribute, clocks, addresses, uuids as text. */
#ifndef UTIL_H
#define UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <ferry/map.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
static inline void free_pointer(void *p)
{
	free(*(void **)p);
}
#define _cleanup_close_ __attribute__((cleanup(close_fd)))
#define _cleanup_free_ __attribute__((cleanup(free_pointer)))
/* Hands a descriptor over: the cleanup no longer closes it. */
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

#define SEC_NS 1000000000ULL
#define MSEC_NS 1000000ULL
/* CLOCK_BOOTTIME: counts suspend, and is the clock of the records' deadlines. */
uint64_t boottime_ns(void);
/* The kernel's boot id. 0 or -errno. */
int boot_id(uint8_t id[16]);
int random_bytes(void *buf, size_t size);

/* Makes the file `name` of a directory another user's, where it is what it should be: of this type,
 * with one name (others may write to the directory: a link to something else is not given away).
 * 0 or -errno; -EPERM where it is something else. */
int give_away(int dir, const char *name, mode_t type, uid_t uid, gid_t gid);

/* Names of nodes and services become paths, and words of commands: 1 to 31 letters, digits, ".",
 * "_", "-", no dot in front. */
#define NODE_NAME 32
bool name_valid(const char *name);

#define UUID_TEXT 37
const char *uuid_text(const uint8_t uuid[16], char text[UUID_TEXT]);
/* 0 or -EINVAL. */
int uuid_parse_text(const char *text, uint8_t uuid[16]);

/* Addresses are 16 octets, IPv4 as v4-mapped IPv6 (RFC 4291 section 2.5.5.2). */
#define ADDR_TEXT 46
bool addr_is_v4(const uint8_t addr[16]);
const char *addr_text(const uint8_t addr[16], char text[ADDR_TEXT]);
int addr_parse(const char *text, uint8_t addr[16]);
/* port in network order */
socklen_t addr_to_sockaddr(const uint8_t addr[16], uint16_t port, bool v6_socket,
			   struct sockaddr_storage *ss);
int addr_from_sockaddr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port);

/* "tcp 198.51.100.7:40000 > 203.0.113.10:443", "[2001:db8::7]:40000" */
#define FLOW_TEXT 128
const char *flow_text(const struct ferry_flow *f, char text[FLOW_TEXT]);
/* The same text back. 0 or -EINVAL. */
int flow_parse(const char *text, struct ferry_flow *f);

#endif
