/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libferry: what an application links to let its connections move between nodes.
 *
 * The application offers units, sets of sockets with one fate, to the agent of its node, and goes
 * on using them. When a unit is to move, the library calls quiesce(); on the other node the
 * application's twin (same kind) finds the unit in arrived(), sockets filled. The library has no
 * thread and no loop: wait for ferry_fd() to be readable and call ferry_dispatch(), which makes
 * all callbacks. Nothing here needs a privilege. Not thread-safe.
 *
 * Invariant: of a unit's sockets exactly one side may touch them: the origin's application until
 * it answers quiesce() and again after aborted(), the destination's from arrived() on.
 *
 *   origin's application                     destination's application
 *   ferry_offer() ... offered()
 *   quiesce() -> ferry_ready(state)          (the library lends empty sockets by itself)
 *   committed(): close the descriptors       arrived(): descriptors, roles, state
 *   or aborted(): go on as before
 */
#ifndef FERRY_H
#define FERRY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FERRY_KIND_MAX 31
#define FERRY_ROLE_MAX 15
#define FERRY_SOCKETS_MAX 253
#define FERRY_STATE_MAX (1024 * 1024)

struct ferry;
struct ferry_unit;

/* Callbacks, made by ferry_dispatch() only. arg is ferry_open()'s. All but arrived() optional. */
struct ferry_ops {
	/* The agent's answer to an offer: reason is NULL, or a stable id why the unit cannot be
	 * kept (the unit is then freed when the callback returns; the sockets go on). */
	void (*offered)(struct ferry_unit *u, const char *reason, void *arg);
	/* Stop using the unit's sockets at a boundary of your choice, then call ferry_ready(), here
	 * or later; or ferry_refuse(). */
	void (*quiesce)(struct ferry_unit *u, void *arg);
	/* The move failed, the connections are alive here: go on. reason: a stable id. The unit's
	 * uuid may be another one, where the agent's tables did not outlive it. */
	void (*aborted)(struct ferry_unit *u, const char *reason, void *arg);
	/* The unit lives elsewhere. Close your descriptors (reads say ECONNABORTED); the unit is
	 * freed when the callback returns. */
	void (*committed)(struct ferry_unit *u, void *arg);
	/* A unit has come: its descriptors, non-blocking and close-on-exec, are yours, in the order
	 * and with the roles of the offer. The unit counts as offered here. */
	void (*arrived)(struct ferry_unit *u, void *arg);
	/* The connection to the agent was lost (-errno), or stands again (0). Without it the
	 * sockets go on, and nothing moves; a unit that was asked to rest rests until the next
	 * agent says how its move ended. The library connects by itself, and offers again what is
	 * held: each unit's offered(), aborted(), committed() or arrived() follows. */
	void (*connected)(int error, void *arg);
};

/*
 * Connects to the agent's UNIX socket at path (NULL: $FERRY_SOCKET, else the only one in
 * /run/ferry) and registers this process for units of this kind (1..FERRY_KIND_MAX octets,
 * printable). Waits for the agent, and for its answer, 2 seconds each at most. 0 or -errno:
 * -ENOENT or -ECONNREFUSED no agent, -EACCES not allowed to, -ETIMEDOUT it does not answer,
 * -EPROTO another protocol version, -EEXIST kind already registered.
 */
int ferry_open(struct ferry **ret, const char *path, const char *kind, const struct ferry_ops *ops,
	       void *arg);
/* Ends the registration; units are withdrawn, descriptors stay the application's. Not in a
 * callback. */
void ferry_close(struct ferry *f);
/* Poll this for POLLIN; the same descriptor for as long as f lives. */
int ferry_fd(const struct ferry *f);
/* Reads what the agent said and makes the callbacks; does not wait. Connects again to an agent that
 * was gone, from 10 ms to a second apart. 0. */
int ferry_dispatch(struct ferry *f);

/*
 * Offers n (1..FERRY_SOCKETS_MAX) connected TCP sockets, or UDP sockets bound to an address, with
 * one role each (at most FERRY_ROLE_MAX octets, NULL: ""). The descriptors stay the application's.
 * data is for ferry_unit_data(). 0 (offered() will follow, without an agent once there is one) or
 * -errno: -EAGAIN the agent is behind, offer again.
 */
int ferry_offer(struct ferry *f, const int *fds, const char *const *roles, unsigned int n,
		void *data, struct ferry_unit **ret);
/* Before the application closes the sockets of a unit: forget it. Frees u. */
void ferry_withdraw(struct ferry_unit *u);

/* Answers quiesce(): the sockets are not touched any more; state (at most FERRY_STATE_MAX octets,
 * copied) goes to the twin. 0 or -errno. */
int ferry_ready(struct ferry_unit *u, const void *state, size_t size);
/* Answers quiesce() with no: the move ends by reason "app-refused". */
int ferry_refuse(struct ferry_unit *u);

unsigned int ferry_unit_count(const struct ferry_unit *u);
int ferry_unit_fd(const struct ferry_unit *u, unsigned int i);
const char *ferry_unit_role(const struct ferry_unit *u, unsigned int i);
/* 16 octets, the same on every node. */
const uint8_t *ferry_unit_uuid(const struct ferry_unit *u);
/* In arrived(): what the twin gave to ferry_ready(); valid until the callback returns. */
const void *ferry_unit_state(const struct ferry_unit *u, size_t *size);
void ferry_unit_set_data(struct ferry_unit *u, void *data);
void *ferry_unit_data(const struct ferry_unit *u);
/*
 * In arrived(): takes the next datagram that was queued, unread, in UDP socket i at the origin,
 * oldest first. Its length (cut to size) and sender, or -EAGAIN when there is no more.
 */
ssize_t ferry_unit_datagram(struct ferry_unit *u, unsigned int i, void *buf, size_t size,
			    struct sockaddr_storage *from);

#ifdef __cplusplus
}
#endif
#endif
