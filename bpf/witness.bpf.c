// SPDX-License-Identifier: GPL-2.0-only
/*
 * witness: what becomes of connections that nobody has accepted when their listener stops to
 * listen. It sees every TCP listener of the machine, and changes nothing.
 *
 * The kernel (net/ipv4/inet_connection_sock.c, inet_csk_listen_stop) does all of it in the task
 * that closes, and so does what is here, in that order:
 *
 *   1 listener LISTEN -> CLOSE          state()   the queue is still whole: its length is noted
 *   2 for each in the queue that goes to nobody (inet_child_forget), softirqs off from here to d:
 *     a child x -> CLOSE                state()   not where its client has gone before
 *     b child, not orphaned: reported   report()  a socket without an owner that is no orphan: it
 *     c child is orphaned                         has never been accepted
 *     d child is destroyed              destroy() the same as in b: that is no other way of dying
 *   3 listener is destroyed, or, where it was only shut down, reported
 *
 * What goes to another listener gives no sign. An interrupt brings other sockets' ends into the
 * same task: accepted ones that were closed before are orphans in b, and a client that lives here
 * too has an owner; what dies in the queue dies by a and b, and by b to d when its turn comes.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <ferry/witness.h>

/* BPF_PROG() names a context that is not used. */
#pragma clang diagnostic ignored "-Wunused-parameter"
#define IPPROTO_TCP 6
#define AF_INET 2
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LISTEN 10

/* Of the kernel's, what is read. */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));
typedef struct {
	struct net *net;
} possible_net_t;
typedef struct {
	int counter;
} atomic_t;
struct in6_addr {
	__u8 octets[16];
};
struct sock_common {
	__u32 skc_daddr, skc_rcv_saddr;
	__u16 skc_dport, skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
	unsigned long skc_flags;
} __attribute__((preserve_access_index));
struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	__u32 sk_ack_backlog;
	int sk_err;
	__u16 sk_protocol;
	__u8 sk_shutdown;
} __attribute__((preserve_access_index));
struct inet_sock {
	__u16 inet_sport;
} __attribute__((preserve_access_index));
struct request_sock_queue {
	atomic_t qlen;
} __attribute__((preserve_access_index));
struct inet_connection_sock {
	struct request_sock_queue icsk_accept_queue;
} __attribute__((preserve_access_index));
enum sock_flags {
	SOCK_DEAD,
	SOCK_RCU_FREE = 25, /* the number is the running kernel's */
};

/* Set for a negative control: whatever ends in the closing task is taken for a lost connection. */
const volatile __u8 cfg_any;

/* A close under way. */
struct closing {
	__u64 sk;
	struct witness_close c;
};

/* The un-accepted connection that ended last on this processor, see 2. By d the kernel has taken
 * its addresses away. */
struct ending {
	__u64 sk;
	__u32 before; /* its state before */
	__u32 reported;
	__u8 local[16], remote[16];
	__u16 local_port, remote_port;
	__u32 pad;
};

/* Thread -> what it closes; a thread closes one at a time. Full: counted in unseen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WITNESS_CLOSING);
	__type(key, __u64);
	__type(value, struct closing);
} closing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ending);
} endings SEC(".maps");

/* Address -> all closes there. Full: counted in no_row. Readers read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WITNESS_ROWS);
	__type(key, struct witness_key);
	__type(value, struct witness_close);
} rows SEC(".maps");

/* Socket cookie -> its closes: it may listen again. Full: the oldest make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WITNESS_SOCKETS);
	__type(key, __u64);
	__type(value, struct witness_close);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct witness_state);
} totals SEC(".maps");

/* Every close, and each lost client before its close if totals.clients says so. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WITNESS_RING);
} ring SEC(".maps");

__s32 open_closes; /* how many are under way */

static const __u32 zero;

static __always_inline struct witness_state *state_of_all(void)
{
	return bpf_map_lookup_elem(&totals, &zero);
}

static __always_inline struct closing *closes_now(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&closing, &thread);
}

static __always_inline void say(void *record, __u64 size)
{
	struct witness_state *all = state_of_all();

	if (bpf_ringbuf_output(&ring, record, size, 0) && all)
		__sync_fetch_and_add(&all->unsaid, 1);
}

static __always_inline __u64 netns_of(struct sock *sk)
{
	return sk->__sk_common.skc_net.net->net_cookie;
}

/* skc_num may be 0 by now. */
static __always_inline __u16 port_of(struct sock *sk)
{
	return bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
}

static __always_inline void put_v4(__u8 to[16], __u32 addr)
{
	__builtin_memset(to, 0, 10);
	__builtin_memset(to + 10, 0xff, 2);
	__builtin_memcpy(to + 12, &addr, 4);
}

static __always_inline void put_local(__u8 to[16], struct sock *sk)
{
	if (sk->__sk_common.skc_family == AF_INET)
		put_v4(to, sk->__sk_common.skc_rcv_saddr);
	else
		BPF_CORE_READ_INTO((struct in6_addr *)to, sk, __sk_common.skc_v6_rcv_saddr);
}

static __always_inline void put_remote(__u8 to[16], struct sock *sk)
{
	if (sk->__sk_common.skc_family == AF_INET)
		put_v4(to, sk->__sk_common.skc_daddr);
	else
		BPF_CORE_READ_INTO((struct in6_addr *)to, sk, __sk_common.skc_v6_daddr);
}

static __always_inline int has_flag(struct sock *sk, __u64 flag)
{
	return sk->__sk_common.skc_flags >> flag & 1;
}

/* Never accepted: nobody owns it, and nobody has left it. */
static __always_inline int is_unaccepted(struct sock *sk)
{
	return !sk->sk_socket && !has_flag(sk, SOCK_DEAD);
}

static __always_inline void add(__u64 to[WITNESS_COUNT], const __u64 n[WITNESS_COUNT])
{
	for (int i = 0; i < WITNESS_COUNT; i++)
		if (n[i])
			__sync_fetch_and_add(&to[i], n[i]);
}

/* Adds to what is there; who did it last is told by the last. */
static __always_inline int add_to(void *map, const void *key, struct witness_close *c)
{
	struct witness_close *row = bpf_map_lookup_elem(map, key);

	if (!row && !bpf_map_update_elem(map, key, c, BPF_NOEXIST))
		return 0;
	row = row ? row : bpf_map_lookup_elem(map, key); /* another may have come first */
	if (!row)
		return -1;
	add(row->n, c->n);
	row->at = c->at;
	row->pid = c->pid;
	row->way = c->way;
	row->cookie = c->cookie;
	__builtin_memcpy(row->comm, c->comm, sizeof(c->comm));
	return 0;
}

static __always_inline void begin(struct sock *sk)
{
	struct witness_state *all = state_of_all();
	__u64 thread = bpf_get_current_pid_tgid();
	struct closing now = { .sk = (__u64)sk };

	/* listen() that failed: it never listened (its hash() sets the flag) */
	if (!all || !has_flag(sk, bpf_core_enum_value(enum sock_flags, SOCK_RCU_FREE)))
		return;
	now.c.pid = (__u32)(thread >> 32);
	now.c.cookie = bpf_get_socket_cookie(sk);
	now.c.key.netns = netns_of(sk);
	now.c.key.port = port_of(sk);
	put_local(now.c.key.addr, sk);
	bpf_get_current_comm(now.c.comm, sizeof(now.c.comm));
	now.c.n[WITNESS_CLOSES] = 1;
	now.c.n[WITNESS_QUEUED] = sk->sk_ack_backlog;
	now.c.n[WITNESS_HALF_OPEN] = (__u32)BPF_CORE_READ((struct inet_connection_sock *)sk,
							  icsk_accept_queue.qlen.counter);
	if (bpf_map_update_elem(&closing, &thread, &now, BPF_ANY))
		__sync_fetch_and_add(&all->unseen, 1);
	else
		__sync_fetch_and_add(&open_closes, 1);
}

static __always_inline void finish(struct closing *now, __u32 way)
{
	struct witness_state *all = state_of_all();
	__u64 thread = bpf_get_current_pid_tgid(), lost, *n = now->c.n;

	lost = n[WITNESS_RESET] + n[WITNESS_HALF_CLOSED] + n[WITNESS_GONE];
	/* one may have come into the queue on another processor after its length was read */
	if (n[WITNESS_QUEUED] < lost)
		n[WITNESS_QUEUED] = lost;
	n[WITNESS_MIGRATED] = n[WITNESS_QUEUED] - lost;
	now->c.way = way;
	now->c.at = bpf_ktime_get_boot_ns();
	if (all) {
		add(all->n, n);
		if (add_to(&rows, &now->c.key, &now->c))
			__sync_fetch_and_add(&all->no_row, 1);
	}
	add_to(&sockets, &now->c.cookie, &now->c);
	say(&now->c, sizeof(now->c));
	bpf_map_delete_elem(&closing, &thread);
	__sync_fetch_and_add(&open_closes, -1);
}

static __always_inline void say_client(const struct ending *e, struct closing *now, __u32 count)
{
	struct witness_client w = {
		.kind = WITNESS_CLIENT,
		.count = count,
		.cookie = now->c.cookie,
		.local_port = e->local_port,
		.remote_port = e->remote_port,
	};

	w.key = now->c.key;
	__builtin_memcpy(w.local, e->local, sizeof(w.local));
	__builtin_memcpy(w.remote, e->remote, sizeof(w.remote));
	say(&w, sizeof(w));
}

static __always_inline void note(struct sock *sk, __u32 before)
{
	struct ending *e = bpf_map_lookup_elem(&endings, &zero);

	if (!e)
		return;
	e->sk = (__u64)sk;
	e->before = before;
	e->reported = 0;
	e->local_port = port_of(sk);
	e->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	put_local(e->local, sk);
	put_remote(e->remote, sk);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state, struct sock *sk, int before, int now)
{
	struct closing *c;

	if (now != TCP_CLOSE || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (before == TCP_LISTEN) {
		begin(sk);
		return 0;
	}
	if (!open_closes)
		return 0;
	c = closes_now();
	if (c && cfg_any)
		c->c.n[WITNESS_RESET]++;
	if (c && is_unaccepted(sk))
		note(sk, (__u32)before);
	return 0;
}

SEC("tp_btf/inet_sk_error_report")
int BPF_PROG(report, struct sock *sk)
{
	struct ending *e;
	struct closing *c;

	if (sk->sk_protocol != IPPROTO_TCP || sk->__sk_common.skc_state != TCP_CLOSE)
		return 0;
	c = open_closes ? closes_now() : NULL;
	if (c && c->sk == (__u64)sk) {
		finish(c, sk->sk_err ? WITNESS_DESTROYED : WITNESS_SHUT_DOWN);
		return 0;
	}
	e = is_unaccepted(sk) ? bpf_map_lookup_elem(&endings, &zero) : NULL;
	if (!e)
		return 0;
	if (e->sk != (__u64)sk || e->reported)
		e->before = TCP_CLOSE;
	e->sk = (__u64)sk;
	e->reported = 1;
	return 0;
}

static __always_inline void lose(struct sock *sk, const struct ending *e)
{
	struct closing *c = closes_now();
	struct witness_state *all = state_of_all();
	__u32 count = e->before == TCP_CLOSE      ? WITNESS_GONE :
		      e->before == TCP_CLOSE_WAIT ? WITNESS_HALF_CLOSED :
						    WITNESS_RESET;

	if (!all || cfg_any)
		return;
	if (!c || c->c.key.port != port_of(sk) || c->c.key.netns != netns_of(sk)) {
		__sync_fetch_and_add(&all->strays, 1);
		return;
	}
	c->c.n[count]++;
	if (all->clients && count != WITNESS_GONE)
		say_client(e, c, count);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy, struct sock *sk)
{
	struct closing *c = open_closes ? closes_now() : NULL;
	struct ending *e = bpf_map_lookup_elem(&endings, &zero);

	/* first: one that was reported here, and accepted and destroyed elsewhere, may have left its
	 * address, which is a listener's now */
	if (c && c->sk == (__u64)sk) {
		finish(c, WITNESS_CLOSED);
		return 0;
	}
	if (!e || e->sk != (__u64)sk)
		return 0;
	/* who has had it accepted, after all, and closes it, shuts it down first */
	if (e->reported && !sk->sk_shutdown)
		lose(sk, e);
	e->sk = 0;
	return 0;
}

char _license[] SEC("license") = "GPL";
