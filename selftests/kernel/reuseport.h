/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the rules about reuseport groups share: listeners, clients that wait in their queues, the
 * program that says where those go, and the kernel's counters. The programs are assembled here:
 * nothing has to stand beside a rule in a guest. Clients have sent one octet each.
 */
#ifndef REUSEPORT_H
#define REUSEPORT_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include "rule.h"

#define PORT 7300
#define CLIENTS 32

enum { PLAIN = 0, GROUP = 1, ADDRESS = 2 }; /* SO_REUSEPORT, SO_REUSEADDR */

static inline int bound(const struct name *at, int how)
{
	int fd = socket(at->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0), err = 0;

	need(fd >= 0 && !set(fd, SOL_SOCKET, SO_REUSEPORT, !!(how & GROUP)) &&
	     !set(fd, SOL_SOCKET, SO_REUSEADDR, !!(how & ADDRESS)));
	if (bind(fd, &at->sa, at->size)) {
		err = -errno;
		close(fd);
	}
	return err ? err : fd;
}

/* A listener, or -errno of its bind or listen. */
static inline int listener_at(const struct name *at, int how, int backlog)
{
	int fd = bound(at, how), err;

	if (fd < 0 || !listen(fd, backlog))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static inline int listener(int family, int how)
{
	struct name at = loopback(family, PORT);

	return listener_at(&at, how, 64);
}

/* How many wait in a listener's queue. */
static inline int queued(int fd)
{
	return (int)info(fd).tcpi_unacked;
}

struct clients {
	int fd[CLIENTS];
};

/* All of them have been answered by the kernel, none by an application. */
static inline struct clients clients(int family)
{
	struct clients c;

	for (int i = 0; i < CLIENTS; i++) {
		c.fd[i] = socket(family, SOCK_STREAM, 0);
		need(c.fd[i] >= 0 && !connect_to(c.fd[i], family, PORT));
		need(send(c.fd[i], "x", 1, 0) == 1);
	}
	settle();
	return c;
}

/* How many of them are reset, and ends all. */
static inline int reset(const struct clients *c)
{
	int count = 0;
	char octet;

	settle();
	for (int i = 0; i < CLIENTS; i++) {
		count += recv(c->fd[i], &octet, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
		close(c->fd[i]);
	}
	return count;
}

/* Accepts all that wait, and how many of those had their octet with them. */
static inline int served(int fd)
{
	int count = 0, one;
	char octet;

	while ((one = accept(fd, NULL, NULL)) >= 0) {
		count += recv(one, &octet, 1, MSG_DONTWAIT) == 1;
		close(one);
	}
	need(errno == EAGAIN);
	return count;
}

static inline int counter(const char *name)
{
	char names[8192], values[8192], *n, *v, *n_at, *v_at;
	FILE *f = fopen("/proc/thread-self/net/netstat", "re");
	int count = -1;

	need(f && fgets(names, sizeof(names), f) && fgets(values, sizeof(values), f));
	fclose(f);
	n = strtok_r(names, " \n", &n_at);
	v = strtok_r(values, " \n", &v_at);
	for (; n && v; n = strtok_r(NULL, " \n", &n_at), v = strtok_r(NULL, " \n", &v_at))
		if (!strcmp(n, name))
			count = atoi(v);
	need(count >= 0);
	return count;
}

static inline int moved(void)
{
	return counter("TCPMigrateReqSuccess");
}

static inline int not_moved(void)
{
	return counter("TCPMigrateReqFailure");
}

static inline int sockarray(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_REUSEPORT_SOCKARRAY, "rule", 4, 8, 4, NULL);

	need(fd >= 0);
	return fd;
}

/* 0 or -errno. */
static inline int put(int array, uint32_t slot, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(array, &slot, &value, BPF_ANY) ? -errno : 0;
}

/* iter is the name of the iterator that the program is for, or NULL. */
static inline int load(enum bpf_prog_type type, enum bpf_attach_type attach, const char *iter,
		       const struct bpf_insn *code, size_t count)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach);
	int id = iter ? libbpf_find_vmlinux_btf_id(iter, attach) : 0, fd;

	need(id >= 0);
	opts.attach_btf_id = (uint32_t)id;
	fd = bpf_prog_load(type, "rule", "Dual BSD/GPL", code, count, &opts);
	need(fd >= 0);
	return fd;
}

/* Gives SO_REUSEPORT to the socket, or to that of the context, that is in r1. */
#define CODE_SET_REUSEPORT                                                                         \
	{ BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 1 },                                        \
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, SOL_SOCKET },                      \
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, SO_REUSEPORT },                    \
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_4, BPF_REG_10, 0, 0 },                      \
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_4, 0, 0, -4 },                              \
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_5, 0, 0, 4 },                               \
	{                                                                                          \
		BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_setsockopt                                   \
	}

/* Chooses the socket in this slot, if one is there, then says verdict. */
static inline int chooser(enum bpf_attach_type attach, int array, int slot, int verdict)
{
	const struct bpf_insn code[] = {
		{ BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, slot },
		{ BPF_LD | BPF_IMM | BPF_DW, BPF_REG_2, BPF_PSEUDO_MAP_FD, 0, array },
		{ 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_3, BPF_REG_10, 0, 0 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_3, 0, 0, -4 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_4, 0, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_sk_select_reuseport },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, verdict },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};

	return load(BPF_PROG_TYPE_SK_REUSEPORT, attach, NULL, code, sizeof(code) / sizeof(*code));
}

/* 0 or -errno; the group keeps the program. */
static inline int attach(int fd, int program)
{
	int err = set(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, program);

	close(program);
	return err;
}

static inline int migrate_to(int array, int slot)
{
	return chooser(BPF_SK_REUSEPORT_SELECT_OR_MIGRATE, array, slot, SK_PASS);
}

/* A listener with all clients in its queue, and one that has joined its group since, in slot 0. */
struct group {
	int from, to, array;
	struct clients c;
};

static inline struct group group(int family, int backlog)
{
	struct name at = loopback(family, PORT);
	struct group g = { listener(family, GROUP), -1, sockarray(), clients(family) };

	g.to = listener_at(&at, GROUP, backlog);
	need(g.to >= 0 && !put(g.array, 0, g.to) && queued(g.from) == CLIENTS);
	return g;
}

static inline void part(struct group *g)
{
	close(g->to);
	close(g->array);
	new_namespace(); /* without what is in TIME_WAIT */
}

#endif
