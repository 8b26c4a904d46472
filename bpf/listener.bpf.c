// SPDX-License-Identifier: GPL-2.0-only
/*
 * listener: who of a reuseport group is given a connection. A new one goes to a member of the working
 * generation, by its hash, else to the holder. One that a closed listener has not accepted goes to a
 * member of the same generation that has room, then to one of the working generation, then to any that
 * has room, if nobody is to wait, all of its kind; else to its kind's holder. Where even that is closed
 * the kernel is told that there is nobody.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <ferry/listener.h>

#define TCP_CLOSE 7
#define TCP_NEW_SYN_RECV 12
#define NONE 0xffffffff
#define UNKNOWN (~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, LISTENER_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct listener_group);
} group SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LISTENER_SLOTS);
	__type(key, __u32);
	__type(value, struct listener_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LISTENER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);

	if (n)
		(*n)++;
}

static __always_inline int give(struct sk_reuseport_md *ctx, __u32 slot)
{
	return bpf_sk_select_reuseport(ctx, &socks, &slot, 0);
}

/* By value: the verifier forgets a number whose address it has seen. */
static __always_inline struct listener_slot *slot_at(__u32 i)
{
	return bpf_map_lookup_elem(&slots, &i);
}

/* ~0 where the highest bit is set, else 0. Without a branch, which the compiler would make of it: the
 * verifier would walk each way, in each round. */
static __always_inline __u32 mask(__u32 n)
{
	asm volatile("" : "+r"(n));
	n >>= 31;
	asm volatile("" : "+r"(n));
	return -n;
}

/* ~0, or 0 where it is 0. */
static __always_inline __u32 mask_of(__u32 n)
{
	return mask(n | -n);
}

/* What is asked of a member; what is NONE is not cared for. */
struct wanted {
	__u32 generation, kind, care_generation, care_kind;
};

/* A member's weight; 0 where it has no room, or is of another generation or kind than is cared for. */
static __always_inline __u32 weight(const struct listener_slot *s, const struct wanted *w)
{
	__u32 other = ((s->generation ^ w->generation) & w->care_generation) |
		      ((s->kind ^ w->kind) & w->care_kind);

	return s->weight & mask(-(__u32)s->room) & ~mask_of(other);
}

/* A member by weight, from a number that is the connection's own. NONE: nobody has room. Not static:
 * verified once, not for each call. */
__attribute__((noinline)) __u32 choose(__u32 hash, __u32 generation, __u32 kind)
{
	const struct wanted wanted = { generation, kind, mask_of(generation ^ NONE),
				       mask_of(kind ^ NONE) };
	struct listener_slot *s;
	__u32 total = 0, at, w;

	for (__u32 i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		s = slot_at(i);
		if (!s)
			return NONE;
		total += weight(s, &wanted);
	}
	at = (__u32)(((__u64)hash * total) >> 32);
	for (__u32 i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		s = slot_at(i);
		if (!s)
			return NONE;
		w = weight(s, &wanted);
		if (at < w)
			return i;
		at -= w;
	}
	return NONE;
}

static __always_inline __u32 give_member(struct sk_reuseport_md *ctx, __u32 generation, __u32 kind)
{
	__u32 slot = choose(ctx->hash, generation, kind);

	return slot == NONE || give(ctx, slot) ? NONE : slot;
}

static __always_inline void take_room(__u32 slot)
{
	struct listener_slot *s = slot_at(slot);

	if (s)
		__sync_fetch_and_add(&s->room, -1);
}

/* The kind and generation of a listener that closes, which is given nothing more from here on; of a
 * holder generation 0, of which nobody is. */
__attribute__((noinline)) __u64 closes(__u64 cookie)
{
	for (__u32 i = 0; i < LISTENER_SLOTS; i++) {
		struct listener_slot *s = slot_at(i);

		if (!s)
			return UNKNOWN;
		if (s->cookie == cookie) {
			s->weight = 0;
			return (__u64)s->kind << 32 | s->generation;
		}
	}
	return UNKNOWN;
}

static __always_inline int is_kick(struct sk_reuseport_md *ctx, const struct listener_group *g)
{
	__u16 *source = ctx->data;

	return g->kick_port && (void *)(source + 1) <= ctx->data_end && *source == g->kick_port;
}

static __always_inline int give_holder(struct sk_reuseport_md *ctx, const struct listener_group *g,
				       __u32 kind)
{
	return kind < LISTENER_KINDS ? give(ctx, g->hold[kind]) : -1;
}

static __always_inline int on_new(struct sk_reuseport_md *ctx, const struct listener_group *g)
{
	__u32 slot = NONE;

	if (is_kick(ctx, g) && !give(ctx, g->kick_slot)) {
		count(LISTENER_KICKED);
		return SK_PASS;
	}
	if (g->open)
		slot = give_member(ctx, g->working, NONE);
	if (slot == NONE && give_holder(ctx, g, g->kind))
		return SK_PASS; /* by the kernel's hash */
	count(slot == NONE ? LISTENER_SYN_HELD : LISTENER_SYN_MEMBER);
	return SK_PASS;
}

/* Who is given what this listener has not accepted; NONE: its kind's holder, of *kind. */
static __always_inline __u32 give_heir(struct sk_reuseport_md *ctx, const struct listener_group *g,
				       __u32 *kind)
{
	__u64 from = closes(bpf_get_socket_cookie(ctx->sk));
	__u32 slot, cared;

	*kind = from == UNKNOWN ? g->kind : (__u32)(from >> 32);
	if (!g->open)
		return NONE;
	cared = g->mixed ? NONE : *kind;
	slot = from == UNKNOWN ? NONE : give_member(ctx, (__u32)from, cared);
	if (slot == NONE)
		slot = give_member(ctx, g->working, cared);
	if (slot == NONE && !g->waits)
		slot = give_member(ctx, NONE, cared);
	return slot;
}

static __always_inline int on_migrating(struct sk_reuseport_md *ctx, const struct listener_group *g,
					__u32 state)
{
	__u32 kind, slot = give_heir(ctx, g, &kind);
	int half = state == TCP_NEW_SYN_RECV; /* of no queue yet */

	if (slot != NONE) {
		take_room(slot);
		count(half                ? LISTENER_HALF_OPEN :
		      state == TCP_CLOSE ? LISTENER_DEAD :
					   LISTENER_ALIVE);
	} else if (!give_holder(ctx, g, kind)) {
		count(half ? LISTENER_HALF_OPEN : LISTENER_HELD);
	} else {
		count(half ? LISTENER_HALF_CANCELLED : LISTENER_CANCELLED);
		return SK_DROP;
	}
	return SK_PASS;
}

SEC("sk_reuseport/migrate")
int listener(struct sk_reuseport_md *ctx)
{
	struct bpf_sock *child = ctx->migrating_sk;
	const struct listener_group *g;
	__u32 zero = 0;

	g = bpf_map_lookup_elem(&group, &zero);
	if (!g)
		return SK_PASS;
	return child ? on_migrating(ctx, g, child->state) : on_new(ctx, g);
}

char _license[] SEC("license") = "GPL";
