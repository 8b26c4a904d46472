// SPDX-License-Identifier: BSD-2-Clause
/* Clocks, addresses, uuids and flows as text. No state. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include "util.h"

uint64_t boottime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * SEC_NS + (uint64_t)ts.tv_nsec;
}

int random_bytes(void *buf, size_t size)
{
	return getrandom(buf, size, 0) == (ssize_t)size ? 0 : -EIO;
}

int boot_id(uint8_t id[16])
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[UUID_TEXT] = "";

	if (fd < 0)
		return -errno;
	if (read(fd, text, UUID_TEXT - 1) != UUID_TEXT - 1)
		return -EIO;
	return uuid_parse_text(text, id);
}

int give_away(int dir, const char *name, mode_t type, uid_t uid, gid_t gid)
{
	_cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if ((st.st_mode & S_IFMT) != type || (type != S_IFDIR && st.st_nlink != 1))
		return -EPERM;
	if (st.st_uid == uid && st.st_gid == gid)
		return 0;
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) ? -errno : 0;
}

bool name_valid(const char *name)
{
	size_t n = strspn(name,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n && !name[n] && n < NODE_NAME && name[0] != '.';
}

const char *uuid_text(const uint8_t u[16], char text[UUID_TEXT])
{
	snprintf(text, UUID_TEXT,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
	return text;
}

int uuid_parse_text(const char *text, uint8_t uuid[16])
{
	unsigned int n = 0;

	for (; *text && n < 32; text++) {
		const char *digits = "0123456789abcdef", *at;

		if (*text == '-')
			continue;
		if (!isxdigit((unsigned char)*text))
			return -EINVAL;
		at = strchr(digits, tolower((unsigned char)*text));
		uuid[n / 2] = (uint8_t)(n % 2 ? uuid[n / 2] | (at - digits) : (at - digits) << 4);
		n++;
	}
	return n == 32 && !*text ? 0 : -EINVAL;
}

bool addr_is_v4(const uint8_t addr[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	return !memcmp(addr, mapped, sizeof(mapped));
}

const char *addr_text(const uint8_t addr[16], char text[ADDR_TEXT])
{
	if (addr_is_v4(addr))
		inet_ntop(AF_INET, addr + 12, text, ADDR_TEXT);
	else
		inet_ntop(AF_INET6, addr, text, ADDR_TEXT);
	return text;
}

int addr_parse(const char *text, uint8_t addr[16])
{
	memset(addr, 0, 16);
	if (inet_pton(AF_INET, text, addr + 12) == 1) {
		addr[10] = addr[11] = 0xff;
		return 0;
	}
	return inet_pton(AF_INET6, text, addr) == 1 ? 0 : -EINVAL;
}

socklen_t addr_to_sockaddr(const uint8_t addr[16], uint16_t port, bool v6_socket,
			   struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (addr_is_v4(addr) && !v6_socket) {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;

		in->sin_family = AF_INET;
		in->sin_port = port;
		memcpy(&in->sin_addr, addr + 12, 4);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = port;
	memcpy(&in6->sin6_addr, addr, 16);
	return sizeof(*in6);
}

int addr_from_sockaddr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port)
{
	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

		memset(addr, 0, 10);
		memset(addr + 10, 0xff, 2);
		memcpy(addr + 12, &in->sin_addr, 4);
		*port = in->sin_port;
		return 0;
	}
	if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;

		memcpy(addr, &in6->sin6_addr, 16);
		*port = in6->sin6_port;
		return 0;
	}
	return -EAFNOSUPPORT;
}

static void endpoint_text(const uint8_t addr[16], uint16_t port, char *text, size_t size)
{
	char a[ADDR_TEXT];

	snprintf(text, size, addr_is_v4(addr) ? "%s:%u" : "[%s]:%u", addr_text(addr, a),
		 ntohs(port));
}

const char *flow_text(const struct ferry_flow *f, char text[FLOW_TEXT])
{
	char remote[ADDR_TEXT + 8] = "*", local[ADDR_TEXT + 8];

	if (f->sport)
		endpoint_text(f->saddr, f->sport, remote, sizeof(remote));
	endpoint_text(f->daddr, f->dport, local, sizeof(local));
	snprintf(text, FLOW_TEXT, "%s %s > %s", f->proto == IPPROTO_TCP ? "tcp" : "udp", remote,
		 local);
	return text;
}

/* "ADDR:PORT" or "[ADDR]:PORT", in place */
static int endpoint_parse(char *text, uint8_t addr[16], uint16_t *port)
{
	char *colon = strrchr(text, ':'), *end;
	unsigned long n;

	if (!colon)
		return -EINVAL;
	*colon = 0;
	if (*text == '[') {
		if (colon[-1] != ']')
			return -EINVAL;
		colon[-1] = 0;
		text++;
	}
	n = strtoul(colon + 1, &end, 10);
	if (!isdigit((unsigned char)colon[1]) || *end || !n || n > 65535)
		return -EINVAL;
	*port = htons((uint16_t)n);
	return addr_parse(text, addr);
}

int flow_parse(const char *text, struct ferry_flow *f)
{
	char proto[8], remote[ADDR_TEXT + 8], local[ADDR_TEXT + 8], sep[4];
	int n = 0;

	memset(f, 0, sizeof(*f));
	if (sscanf(text, "%7s %53s %3s %53s%n", proto, remote, sep, local, &n) != 4 ||
	    strcmp(sep, ">") || text[n])
		return -EINVAL;
	if (!strcmp(proto, "tcp"))
		f->proto = IPPROTO_TCP;
	else if (!strcmp(proto, "udp"))
		f->proto = IPPROTO_UDP;
	else
		return -EINVAL;
	if (endpoint_parse(local, f->daddr, &f->dport))
		return -EINVAL;
	if (!strcmp(remote, "*")) {
		if (addr_is_v4(f->daddr))
			f->saddr[10] = f->saddr[11] = 0xff;
		return f->proto == IPPROTO_UDP ? 0 : -EINVAL;
	}
	if (endpoint_parse(remote, f->saddr, &f->sport))
		return -EINVAL;
	return addr_is_v4(f->saddr) == addr_is_v4(f->daddr) ? 0 : -EINVAL;
}
