/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The agent's UNIX socket: SOCK_SEQPACKET, one message a packet, in this machine's byte order,
 * descriptors beside it (SCM_RIGHTS). A first octet of '{' is a command in JSON instead; its
 * answers are JSON too. libferry speaks this for applications that would rather not.
 *
 *   application                          agent
 *   HELLO(kind) + sock_diag socket  ->
 *                                   <-   WELCOME(result)
 *   OFFER(handle, roles) + fds      ->
 *                                   <-   OFFERED(handle, uuid) or with a refusal
 *   WITHDRAW(handle)                ->
 *   a move away:                    <-   BORROW(handle)
 *   SOCKETS(handle) + fds           ->
 *                                   <-   QUIESCE(handle)
 *   READY(handle) + memfd of state  ->   (or REFUSE(handle))
 *                                   <-   COMMITTED(handle) or ABORTED(handle, refusal)
 *   a move to here:                 <-   LEND(request, sockets)
 *   BUNDLE(request) + memfd         ->
 *   LENT(request, handle) + fds     ->
 *                                   <-   GO(request) or DISCARD(request)
 *   to an agent that is new:
 *   BUNDLE(0) + memfd               ->   (before the RESUME of a lent set)
 *   RESUME(handle, uuid) + fds      ->
 *                                   <-   OFFERED(handle), ABORTED(handle), COMMITTED(handle),
 *                                        GO(0, handle) or DISCARD(0, handle)
 *
 * The memfd that is lent with the sockets is where the agent writes what the unit brings: once
 * PREPARED is said, the application holds all of it, whatever becomes of the agent. An agent that
 * starts again finds in its tables how far a move was; what it needs of the sockets it gets back
 * with RESUME, which says how far the application was. Socket options that a freeze switches off
 * (SO_KEEPALIVE, TCP_USER_TIMEOUT, SO_PEEK_OFF, SO_REUSEADDR, SO_OOBINLINE) are then the
 * application's to set back after ABORTED.
 *
 * The sock_diag socket (NETLINK_SOCK_DIAG, one descriptor, or none) is made in the network
 * namespace of the application's sockets: by it the agent asks there which of them still exist.
 */
#ifndef FERRY_APP_H
#define FERRY_APP_H

#include <linux/types.h>

#define FERRY_APP_VERSION 2
#define FERRY_APP_SOCKETS 253 /* SCM_MAX_FD, include/net/scm.h */
#define FERRY_APP_STATE_MAX (1024 * 1024)

enum ferry_app_type {
	FERRY_APP_HELLO = 1,
	FERRY_APP_WELCOME,
	FERRY_APP_OFFER,
	FERRY_APP_OFFERED,
	FERRY_APP_WITHDRAW,
	FERRY_APP_BORROW,
	FERRY_APP_SOCKETS_ARE,
	FERRY_APP_QUIESCE,
	FERRY_APP_READY,
	FERRY_APP_REFUSE,
	FERRY_APP_COMMITTED,
	FERRY_APP_ABORTED,
	FERRY_APP_LEND,
	FERRY_APP_BUNDLE,
	FERRY_APP_LENT,
	FERRY_APP_GO,
	FERRY_APP_DISCARD,
	FERRY_APP_RESUME,
};

/* RESUME's result: what the unit is to the application. */
enum ferry_app_resume {
	FERRY_RESUME_OURS,     /* in use */
	FERRY_RESUME_QUIESCED, /* at rest for a move away, whose end was not heard of */
	FERRY_RESUME_LENT,     /* lent for a move to here, whose end was not heard of */
};

struct ferry_app_socket {
	__u16 family;   /* LEND: AF_INET or AF_INET6 */
	__u16 type;     /* LEND: SOCK_STREAM or SOCK_DGRAM */
	char role[16];  /* OFFER, LEND, RESUME */
};

struct ferry_app_message {
	__u16 type;
	__u16 version;
	__u32 id;       /* handle of a unit (the application's), or request (the agent's) */
	__u32 handle;   /* LENT: the handle of the unit that is to come; GO, DISCARD: the same */
	__s32 result;   /* WELCOME: 0 or -errno; RESUME: enum ferry_app_resume */
	__u32 count;    /* sockets */
	__u32 size;     /* READY: octets of state */
	__u8 uuid[16];  /* OFFERED, ABORTED, LEND, GO, RESUME */
	char text[32];  /* HELLO: kind; OFFERED, ABORTED: refusal, "" none */
	struct ferry_app_socket sockets[]; /* count of them: OFFER, LEND, RESUME */
};
_Static_assert(sizeof(struct ferry_app_message) == 72, "application message");
_Static_assert(sizeof(struct ferry_app_socket) == 20, "application socket");
#define FERRY_APP_MESSAGE_MAX (72 + FERRY_APP_SOCKETS * 20)

/*
 * The bundle, in the memfd: this header, count sockets, then octets at the offsets given. Queued
 * datagrams: struct ferry_bundle_datagram, its octets, padded to 8, one after the other. The magic
 * number is written last: a bundle that has it is whole.
 */
#define FERRY_BUNDLE_MAGIC 0x42595246U
struct ferry_bundle {
	__u32 magic;
	__u32 count;
	__u8 uuid[16];
	__u8 move_id[16];
	__u64 state_at;
	__u64 state_size;
};
struct ferry_bundle_socket {
	char role[16];
	__u64 unsent_at;
	__u64 datagrams_at;
	__u32 unsent;    /* octets to write before the application's own */
	__u32 datagrams; /* how many */
	__u32 buf_lock;  /* SO_BUF_LOCK to set once they are written */
	/* for an agent that has to thaw what an earlier one filled */
	__u32 keepalive;
	__u32 user_timeout; /* ms */
	__u32 reuseaddr;
	__u32 peek_off; /* SO_PEEK_OFF and one, 0: off */
	__u32 pad;
};
struct ferry_bundle_datagram {
	__u8 from[16]; /* IPv4 v4-mapped */
	__u16 port;    /* network order */
	__u16 pad;
	__u32 size;
};
_Static_assert(sizeof(struct ferry_bundle) == 56, "bundle");
_Static_assert(sizeof(struct ferry_bundle_socket) == 64, "bundle socket");
_Static_assert(sizeof(struct ferry_bundle_datagram) == 24, "bundle datagram");

#endif
