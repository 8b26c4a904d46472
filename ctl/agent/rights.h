/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the agent may do. Two phases, and one place where rights are given up; in this order:
 *
 *   1 rights_user()    who the agent becomes
 *   2 rights_start()   first of all: keeps what the start needs, names what is missing
 *   3 ... pins, programs, addresses, sockets; what is made becomes the user's ...
 *   4 rights_serve()   before the loop, for good: the user, without other groups, with the rights
 *                      of serving and no more; looks whether it is so
 *
 * A process that is not root stays who it is; it must have been given the rights of serving. So it
 * is with one that follows this one by exec, which keeps them (ambient). The masks: ferryd(8).
 */
#ifndef AGENT_RIGHTS_H
#define AGENT_RIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rights_user {
	uid_t uid;
	gid_t gid;
};

enum rights_phase { RIGHTS_START, RIGHTS_SERVE };

/* user.c: "USER[:GROUP]", names or numbers; NULL: the default. Where the process is not root, that
 * can only be itself, which is the default there. 0 or -errno and a sentence in error. */
int rights_user(const char *text, struct rights_user *u, char *error, size_t size);
/* A uid or gid in digits. 0 or -EINVAL. */
int user_number(const char *text, uint32_t *n);
/* The capabilities of a phase, a bit each (1 << CAP_...), of those that the kernel knows. */
uint64_t rights_mask(enum rights_phase phase, uint64_t known);
/* What a capability of serving is for, with its name, or NULL. */
const char *rights_purpose(unsigned int cap, const char **name);

/* 0 or -errno and a sentence in error. */
int rights_start(char *error, size_t size);
int rights_serve(const struct rights_user *u, char *error, size_t size);

#endif
