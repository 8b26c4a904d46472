// SPDX-License-Identifier: GPL-2.0-only
/*
 * listener: who of a reuseport group is given a connection. A new one goes to a member of the working
 * generation, by its hash, else to the holder. One that a closed listener has not accepted goes to a
 * member of the same generation that has room, then to any that has, else to the holder. Where even
 * that is closed the kernel is told that there is nobody.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <ferry/listener.h>

#define TCP_CLOSE 7
#define NONE 0xffffffff

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

/* A member's weight; 0 where it has no room, or is not of the generation. Without a branch: the
 * verifier would walk each way, in each round. */
static __always_inline __u32 weight(const struct listener_slot *s, __u32 generation, __u32 care)
{
	__u32 other = (s->generation ^ generation) & care, room = -(__u32)s->room >> 31;

	asm volatile("" : "+r"(other)); /* the compiler would make a branch of it */
	return s->weight & -(room & ~((other | -other) >> 31) & 1);
}

/* A member by weight, from a number that is the connection's own. NONE: nobody has room. Not static:
 * verified once, not for each call. */
__attribute__((noinline)) __u32 choose(__u32 hash, __u32 generation)
{
	struct listener_slot *s;
	__u32 care = generation == NONE ? 0 : ~0, total = 0, at, w;

	for (__u32 i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		s = slot_at(i);
		if (!s)
			return NONE;
		total += weight(s, generation, care);
	}
	at = (__u32)(((__u64)hash * total) >> 32);
	for (__u32 i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		s = slot_at(i);
		if (!s)
			return NONE;
		w = weight(s, generation, care);
		if (at < w)
			return i;
		at -= w;
	}
	return NONE;
}

static __always_inline int give_member(struct sk_reuseport_md *ctx, __u32 generation)
{
	__u32 slot = choose(ctx->hash, generation);

	return slot == NONE || give(ctx, slot) ? (int)NONE : (int)slot;
}

static __always_inline void take_room(__u32 slot)
{
	struct listener_slot *s = slot_at(slot);

	if (s)
		__sync_fetch_and_add(&s->room, -1);
}

/* The generation of a listener that closes, which is given nothing more from here on. */
__attribute__((noinline)) __u32 closes(__u64 cookie)
{
	for (__u32 i = LISTENER_FIRST; i < LISTENER_SLOTS; i++) {
		struct listener_slot *s = slot_at(i);

		if (s && s->cookie == cookie) {
			s->weight = 0;
			return s->generation;
		}
	}
	return NONE;
}

SEC("sk_reuseport/migrate")
int listener(struct sk_reuseport_md *ctx)
{
	struct bpf_sock *child = ctx->migrating_sk;
	struct listener_group *g;
	__u32 zero = 0, generation;
	int slot = (int)NONE, dead;

	g = bpf_map_lookup_elem(&group, &zero);
	if (!g)
		return SK_PASS;
	if (!child) {
		slot = g->open ? give_member(ctx, g->working) : (int)NONE;
		if (slot == (int)NONE && give(ctx, g->hold))
			return SK_PASS; /* by the kernel's hash */
		count(slot == (int)NONE ? LISTENER_SYN_HELD : LISTENER_SYN_MEMBER);
		return SK_PASS;
	}
	dead = child->state == TCP_CLOSE;
	if (g->open) {
		generation = closes(bpf_get_socket_cookie(ctx->sk));
		if (generation != NONE)
			slot = give_member(ctx, generation);
		if (slot == (int)NONE)
			slot = give_member(ctx, g->working);
		if (slot == (int)NONE)
			slot = give_member(ctx, NONE);
	}
	if (slot != (int)NONE) {
		take_room((__u32)slot);
		count(dead ? LISTENER_DEAD : LISTENER_ALIVE);
	} else if (!give(ctx, g->hold)) {
		count(LISTENER_HELD);
	} else {
		count(LISTENER_CANCELLED);
		return SK_DROP;
	}
	return SK_PASS;
}

char _license[] SEC("license") = "GPL";
