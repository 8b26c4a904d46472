/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ferry-guard: keeps the un-accepted connections of listeners. A guard is a port of a network
 * namespace; each address that is listened on there is a group: the kernel's reuseport group of the
 * server's listeners and our holder.
 */
#ifndef GUARD_H
#define GUARD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <systemd/sd-event.h>
#include <ferry/listener.h>
#include "base/util.h"
#include "listener/account.h"
#include "listener/ledger.h"

#define COMM 16
#define WORDS 256
#define PATH 4096
#define STRANGERS 16
#define WEIGHT_MAX 1000

/* A listening TCP socket of some process, and a duplicate of it. */
struct listener {
	int fd;
	pid_t pid;
	char comm[COMM];
	struct sockaddr_storage addr;
	socklen_t size;
	bool v6only, reuse;
	uint32_t device; /* that it is bound to; 0: none */
	uid_t uid;       /* of the socket */
	uint64_t cookie; /* of the socket */
	uint64_t netns;  /* of its network namespace */
	ino_t inode;     /* as descriptors of it are called in /proc */
};

/* What sock_diag says of a listening socket. */
struct queue {
	uint64_t cookie;
	uint32_t queued, backlog;
	uid_t uid;
};

/* A listener that may be given connections. No descriptor of it is kept: it would not close. */
struct member {
	uint64_t cookie; /* 0: a free slot */
	pid_t pid;       /* who listened */
	char comm[COMM];
	bool late; /* we have set SO_REUSEPORT */
	bool seen; /* in the look at the kernel that is going on */
	bool asleep;  /* it may be: something has moved to it since it was woken, see wake.c */
	int32_t room; /* of its slot, as last written */
	uint32_t queued, backlog;
};

/* What is held of one kind: two holders, of which one listens while the other is shut down. A
 * listener gives its queue away when it stops to listen. */
struct hold {
	struct group *group;
	uint32_t kind;
	int fd[2]; /* -1: nothing of this kind is held */
	uint64_t cookie[2];
	unsigned int active;
	uint32_t held; /* queued at the holder in use, when last asked */
	sd_event_source *waiting[2];
	sd_event_source *again;
};

struct group {
	struct guard *guard;
	unsigned int number; /* names it in the store */
	struct listener like; /* its address and user; no descriptor */
	char registered[PATH]; /* whose listeners were asked for there by --pid; empty: the guard's */
	struct hold hold[LISTENER_KINDS];
	int program, socks, group_fd, slots_fd, counts;
	struct listener_group *view; /* the maps', mapped */
	struct listener_slot *slots;
	struct member members[LISTENER_SLOTS];
	unsigned int latest; /* where a free slot is looked for: behind the one given last */
	__u64 before[WITNESS_COUNT]; /* closes there that are none of the group's */
	uint64_t counted[LISTENER_COUNT]; /* since before the witness watched */
	struct group *next;
};

struct stranger {
	pid_t pid;
	uint64_t cookie;
	bool seen; /* listening, in the look at the kernel that is going on */
	char comm[COMM], address[80], why[WORDS];
};

struct guard {
	struct daemon *d;
	struct listener_port at;
	int netns, diag;
	char program[PATH]; /* whose listeners may join; empty: not known yet */
	uint32_t generation;
	bool wait;  /* a new generation takes nothing until it is told to */
	bool mixed; /* what one kind has not accepted, another may */
	bool taken; /* one that ran has joined, and its siblings are not looked for yet */
	bool left;  /* one has left its place since it was looked for who found none */
	pid_t newest, parent; /* a process of that generation, and its parent */
	struct group *groups;
	struct stranger strangers[STRANGERS];
	unsigned int n_strangers;
	struct guard *next;
};

struct daemon {
	sd_event *event;
	const char *socket, *config;
	int listener; /* of the UNIX socket */
	int ports, unmet, events, links[3], netns;
	pid_t keeper;
	unsigned int numbers; /* of groups, so far */
	struct guard *guards;
	struct ledger ledger;
	bool watching; /* by the ledger, or its error says why not */
	uint64_t since; /* that it does, or does not: CLOCK_BOOTTIME */
	struct account gone; /* of groups that have been taken away */
	bool forgets;  /* the kernel does not wake who is given a connection */
	bool restored;
};

/* inspect.c: calls back for each listening TCP socket of the process, of that port, or 0: of any.
 * The callee takes the descriptor by setting it to -1. How many, or -errno. */
int inspect(pid_t pid, uint32_t port, int (*found)(struct listener *l, void *data), void *data);
/* A listening socket; 0 or -errno. */
int inspect_fd(int fd, pid_t pid, struct listener *l);
/* Whether the service manager has the socket, too: it survives its server. */
bool inspect_is_kept(const struct listener *l);
void inspect_comm(pid_t pid, char comm[COMM]);
int inspect_program(pid_t pid, char path[PATH]);
pid_t inspect_parent(pid_t pid); /* 0: not known */
#define LISTENER_TEXT 80
const char *listener_text(const struct listener *l, char text[LISTENER_TEXT]);
uint16_t listener_port_of(const struct listener *l);
/* Whether its port is one of the array's numbers; of an empty array any is. */
bool listener_wanted(const struct listener *l, const json_t *ports);
bool listener_same(const struct listener *a, const struct listener *b);

/* netns.c: a socket of that network namespace, made by a process of its own; or -errno. */
int netns_socket(int own, int netns, int domain, int type, int protocol);
/* 0 or -errno. */
int netns_cookie(int own, int netns, __u64 *cookie);
/* The network namespace that a process is in: a descriptor, or -errno; and its cookie. */
int netns_of(int own, pid_t pid, __u64 *cookie);

/* queues.c: a socket that answers for a network namespace, or -errno. */
int queues_open(int own, int netns);
/* Calls back for each socket that listens on the port. 0 or -errno. */
int queues_read(int fd, uint32_t port, void (*found)(const struct queue *q, void *data), void *data);

/* holder.c: a socket bound as l is, in its network namespace, not listening yet. */
int holder_open(int own_netns, int netns, const struct listener *l, char words[WORDS]);
/* Whether options differ that matter to who accepts, and which. */
bool holder_differs(int listener, int holder, char words[WORDS]);

/* hold.c: opens both holders of a kind, as l is; the first listens. 0 or -errno. */
int hold_open(struct hold *h, const struct listener *l, char words[WORDS]);
/* From here on it is given connections. 0 or -errno. */
int hold_use(struct hold *h, unsigned int which);
/* Those of an earlier agent. 0 or -errno. */
int hold_restore(struct hold *h);
bool hold_exists(const struct hold *h);
/* What is held goes to who can take it; the queues have been read. */
void hold_hand_over(struct hold *h);
/* What is held goes to whoever is there. */
void hold_close(struct hold *h);

/* group.c */
int group_open(struct guard *g, const struct listener *l, struct group **group, char words[WORDS]);
int group_map(struct group *g);
int group_join(struct group *g, const struct listener *l, char words[WORDS]);
/* Members whose sockets listen no more are taken out; room is asked anew. */
void group_refresh(struct group *g);
/* What is held goes to who can take it. */
void group_hand_over(struct group *g);
unsigned int group_members(const struct group *g);
uint32_t group_held(const struct group *g);
void group_count(const struct group *g, uint64_t counts[LISTENER_COUNT]);
/* Everything of it is taken away; what is held goes to members, if there are any. */
void group_close(struct group *g);

/* policy.c: who of a guard's generations takes new connections, and how many each; see ferry(8).
 * The answer to a request. */
json_t *policy_generation(struct guard *g, const json_t *request);
json_t *policy_set(struct guard *g, const json_t *request);
/* What has been set before there was this group. */
void policy_begin(struct group *g);
/* Of a process that listens: that of its kin, which may be an earlier one, or a new one. */
uint32_t policy_generation_of(struct guard *g, pid_t pid);
/* A generation of which nobody is left has a successor. */
void policy_succeed(struct group *g);

/* witness.c: what becomes of who is queued, by the kernel's own steps. Without it all else works. */
void witness_start(struct daemon *d);
/* What an earlier agent has left, which is in d->ledger.fd. */
void witness_restore(struct daemon *d);
void witness_watch(struct daemon *d);
/* Its account begins here. */
void witness_begin(struct group *g);
struct account witness_account(struct group *g);
/* And ends: it is added to d->gone. What has been lost since `before` we have ended ourselves. */
void witness_end(struct group *g, const struct account *before);
json_t *witness_json(const struct account *a);
json_t *witness_describe(struct group *g);

/* wake.c: whether this kernel wakes who waits for a listener when a connection moves to it
 * (CVE-2026-46015), by trying. */
bool wake_is_forgotten(void);
/* Members that something has moved to, and is queued for, are woken by a connection of ours each. */
void wake_all(struct group *g);
/* The same for what was given to them whatever their backlog. */
void wake_at_end(struct group *g);
/* Room for that connection beside another one. */
void wake_make_room(const struct listener *l);

/* arrive.c */
int arrive_open(struct daemon *d, char words[WORDS]);
int arrive_watch(struct daemon *d);
int arrive_set(struct daemon *d, const struct listener_port *at, bool learn);
void arrive_clear(struct daemon *d, const struct listener_port *at);
void arrive_go_on(struct daemon *d, pid_t pid);
/* Those that were stopped, or could not be told of, and are met by nobody yet. */
void arrive_meet(struct daemon *d);

/* guard.c */
struct guard *guard_find(struct daemon *d, const struct listener_port *at);
struct guard *guard_add(struct daemon *d, const struct listener_port *at, int netns, bool learn);
/* A process listens on the guard's port: its listeners join, or are strangers. */
void guard_meet(struct guard *g, pid_t pid);
/* The same for other processes of the program that listen where one has joined: who is no member there
 * is given nothing. beside: who has shared with it until now, and is of its generation. */
void guard_meet_siblings(struct guard *g, bool beside);
/* Who found no place is met again where one has become free. */
void guard_meet_again(struct guard *g);
/* A listener joins. 0 or -errno, and why in words. */
int guard_take(struct guard *g, const struct listener *l, char words[WORDS]);
/* The same, and from now on its program's may join there. */
int guard_register(struct guard *g, const struct listener *l, char words[WORDS]);
/* Whose listeners may join there; group: or NULL, where nobody has listened. */
const char *guard_program(const struct guard *g, const struct group *group);
void guard_refresh(struct guard *g);
/* Strangers that listen no more are forgotten. */
void guard_refresh_strangers(struct guard *g);
/* scan.c: the same for every process of its network namespace. 0 or -errno. */
int guard_scan(struct guard *g);
/* Calls back for each of them. 0 or -errno. */
int scan_each(const struct guard *g, void (*found)(pid_t pid, void *data), void *data);
/* Calls back for each member with a duplicate of its socket: of who listened, or where that has ended,
 * of whoever has it. */
void scan_members(struct group *g,
		  void (*found)(struct group *g, uint32_t slot, const struct listener *l));
/* Another agent (or its keeper) that guards the listener's address; 0: there is none. */
pid_t scan_agent(struct daemon *d, const struct listener *l);
void guard_remove(struct guard *g);

/* store.c, restore.c: descriptors outlive the agent with a keeper, or systemd. */
int store_open(struct daemon *d);
/* Whether n more descriptors can be kept. */
#define KEPT_MAX 8192 /* their names go into one string of an environment: 128 KiB */
#define KEPT_OWN 64   /* those of the agent itself, beside these */
bool store_has_room(const struct daemon *d, unsigned int n, char words[WORDS]);
void store_put(const char *name, int fd);
void store_drop(const char *name);
void store_guard(struct guard *g);
void store_drop_guard(struct guard *g);
void store_group(struct group *g);
void store_drop_group(struct group *g);
void store_hold(struct hold *h);
void store_drop_hold(struct hold *h);
void store_state(struct daemon *d);
/* What an earlier agent has left. 1: it was there, 0: nothing was, -errno. */
int store_restore(struct daemon *d);
void store_all(struct daemon *d);

/* keeper.c: its socket has the agent's path and this. */
#define KEEPER_SUFFIX ".keeper"
int keeper_main(int argc, char **argv);
/* Starts one for this process, which then has all that is to be kept; or uses the one, or the
 * service manager, that has started this process. 0 or -errno. */
int keeper_start(struct daemon *d);

/* config.c: what is wrong is logged. 0 or -errno. */
int config_read(struct daemon *d, const char *path);

/* describe.c */
json_t *describe_all(struct daemon *d);

/* command.c */
int command_open(struct daemon *d);
int command_watch(struct daemon *d);
/* The sockets are taken away, and the keeper is told that this is the end. */
void command_close(struct daemon *d);

#endif
