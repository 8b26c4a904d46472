/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The packet behind the context, the same few calls for XDP, TC and user space. The including
 * program says which: CTX is struct xdp_md, struct __sk_buff or, without either, struct user_ctx.
 * Functions that are verified once (global, not inlined) take the context, because a packet
 * pointer cannot be handed to them.
 */
#ifndef CTX_H
#define CTX_H

#include <linux/bpf.h>
#include <linux/types.h>

#if defined(CTX_XDP)
typedef struct xdp_md ctx_t;
#elif defined(CTX_SKB)
typedef struct __sk_buff ctx_t;
#else
typedef struct user_ctx {
	const void *data;
	const void *data_end;
} ctx_t;
#endif

/* Farthest header that is looked for; the verifier wants a bound. */
#define OFFSET_MAX 0x3fff

/* size octets at this offset of the frame, in its linear part; NULL beyond. */
static __always_inline void *ctx_at(const ctx_t *ctx, __u32 offset, __u32 size)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 at = offset;

	if (at > OFFSET_MAX)
		return 0;
	/* keeps clang from folding pointers and bound into 32-bit arithmetic */
	asm volatile("" : "+r"(data), "+r"(end), "+r"(at));
	data += at;
	return data + size > end ? 0 : data;
}

#endif
