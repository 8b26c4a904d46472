// SPDX-License-Identifier: BSD-2-Clause
/*
 * An iter/tcp program gives SO_REUSEPORT to connections, those that wait for accept among them.
 * Relied on: docs/DESIGN.md (section 5: a server that ran before, without SO_REUSEADDR).
 * Kernel: net/ipv4/tcp_ipv4.c, bpf_iter_tcp_get_func_proto; include/net/sock.h, sock_i_uid.
 */
#include "reuseport.h"

static int iterator(void)
{
	const struct bpf_insn code[] = {
		{ BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_1, 8, 0 }, /* sk_common */
		{ BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 9, 0 },
		{ BPF_LDX | BPF_MEM | BPF_H, BPF_REG_2, BPF_REG_1, 14, 0 }, /* skc_num */
		{ BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, 7, PORT },
		CODE_SET_REUSEPORT,
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	int fd = load(BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER, "tcp", code,
		      sizeof(code) / sizeof(*code));

	fd = bpf_iter_create(bpf_link_create(fd, 0, BPF_TRACE_ITER, NULL));
	need(fd >= 0);
	return fd;
}

/*
 * So a second one listens beside a late listener without SO_REUSEADDR. Up to 6.12, what waits is
 * root's, whosever its listener is: it stays in another user's way until it is accepted.
 */
static void shown(int family)
{
	struct name at = loopback(family, PORT);
	int old = listener(family, PLAIN), holder, run = iterator(), before = moved();
	struct clients c = clients(family);
	int server = accept(old, NULL, NULL); /* of c.fd[0] */
	char octet;

	need(server >= 0 && !set(old, SOL_SOCKET, SO_REUSEPORT, 1));
	rule(bound(&at, GROUP | ADDRESS) == -EADDRINUSE, "connections are in nobody's way");
	need(read(run, &octet, 1) == 0);
	rule(get(server, SOL_SOCKET, SO_REUSEPORT) == 1, "the program sets nothing");
	holder = listener(family, GROUP | ADDRESS);
	rule(holder >= 0, "after the program, a second bind says %s", strerror(-holder));
	need(!attach(holder, migrate_to(sockarray(), 0)));
	close(old);
	rule(moved() - before == CLIENTS - 1 && served(holder) == CLIENTS - 1, "not all move");
	need(send(server, "x", 1, 0) == 1 && recv(c.fd[0], &octet, 1, 0) == 1);
	close(server);
	close(holder);
	reset(&c);
}

int main(void)
{
	return for_each_family(shown);
}
