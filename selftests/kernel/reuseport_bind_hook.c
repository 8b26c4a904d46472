// SPDX-License-Identifier: BSD-2-Clause
/*
 * cgroup/bind4 and bind6 programs set SO_REUSEPORT for an application that does not itself.
 * Relied on: bpf/arrive.bpf.c (reuse), ctl/guard/arrive.c.
 * Kernel: net/core/filter.c, sock_addr_func_proto: bpf_setsockopt; sol_socket_sockopt.
 */
#include <sys/mount.h>
#include <sys/stat.h>
#include "reuseport.h"

static int setter(enum bpf_attach_type attach_type)
{
	const struct bpf_insn code[] = {
		CODE_SET_REUSEPORT,
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1 }, /* the bind goes on */
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};

	return load(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, attach_type, NULL, code,
		    sizeof(code) / sizeof(*code));
}

static void shown(int family)
{
	enum bpf_attach_type hook = family == AF_INET ? BPF_CGROUP_INET4_BIND :
							BPF_CGROUP_INET6_BIND;
	int cgroup = open(".", O_RDONLY | O_DIRECTORY), holder = listener(family, GROUP), fd;
	int procs = open("cgroup.procs", O_WRONLY);

	need(cgroup >= 0 && procs >= 0 && holder >= 0 && write(procs, "0", 1) == 1);
	rule(listener(family, PLAIN) == -EADDRINUSE, "a plain application binds beside its holder");
	need(!bpf_prog_attach(setter(hook), cgroup, hook, 0));
	fd = listener(family, PLAIN);
	rule(fd >= 0, "with the program, a plain application's bind says %s", strerror(-fd));
	rule(get(fd, SOL_SOCKET, SO_REUSEPORT) == 1, "the application has no SO_REUSEPORT");
}

int main(void)
{
	char name[32];
	int status;

	need(!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	need(!mount("rule", "/mnt", "cgroup2", 0, NULL) && !chdir("/mnt"));
	snprintf(name, sizeof(name), "rule-%d", getpid());
	need(!mkdir(name, 0700));
	if (!fork())
		return chdir(name) || for_each_family(shown);
	need(wait(&status) > 0);
	need(until(!rmdir(name) || errno != EBUSY) && access(name, F_OK));
	return status != 0;
}
