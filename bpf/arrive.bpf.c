// SPDX-License-Identifier: GPL-2.0-only
/*
 * arrive: whoever binds to a guarded port gets SO_REUSEPORT, so that it can join the holder there;
 * whoever then listens on it, or stops to, is told of. Where the address is still to be learned, who
 * listens is stopped on its way out of listen(), until its holder is there.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <ferry/listener.h>

/* BPF_PROG() names a context that is not used. */
#pragma clang diagnostic ignored "-Wunused-parameter"
#define IPPROTO_TCP 6
#define SOL_SOCKET 1
#define SO_REUSEPORT 15
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define SIGSTOP 19

/* Of the kernel's, what is read. */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common {
	__u16 skc_num;
	possible_net_t skc_net;
} __attribute__((preserve_access_index));
struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct listener_port);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct listener_port);
} unmet SEC(".maps"); /* who was stopped, or could not be told of */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

static __always_inline int reuse(struct bpf_sock_addr *ctx)
{
	struct listener_port at = { .netns = bpf_get_netns_cookie(ctx),
				    .port = bpf_ntohs((__u16)ctx->user_port) };
	int one = 1;

	if (ctx->protocol == IPPROTO_TCP && bpf_map_lookup_elem(&ports, &at))
		bpf_setsockopt(ctx, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	return 1;
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	return reuse(ctx);
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	return reuse(ctx);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state, struct sock *sk, int before, int now)
{
	struct listener_port at = {};
	struct listener_event *e;
	__u32 *how, pid = (__u32)(bpf_get_current_pid_tgid() >> 32);

	if ((before == TCP_LISTEN) == (now == TCP_LISTEN) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (before == TCP_LISTEN && now != TCP_CLOSE) /* a child, which is a copy of its listener */
		return 0;
	at.netns = sk->__sk_common.skc_net.net->net_cookie;
	at.port = sk->__sk_common.skc_num;
	how = bpf_map_lookup_elem(&ports, &at);
	if (!how)
		return 0;
	if (now == TCP_LISTEN && *how == LISTENER_LEARN &&
	    !bpf_map_update_elem(&unmet, &pid, &at, BPF_ANY) && bpf_send_signal(SIGSTOP))
		bpf_map_delete_elem(&unmet, &pid);
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) { /* full: nobody has read for long */
		if (now == TCP_LISTEN)
			bpf_map_update_elem(&unmet, &pid, &at, BPF_ANY);
		return 0;
	}
	e->at = at;
	e->pid = pid;
	e->listens = now == TCP_LISTEN;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
