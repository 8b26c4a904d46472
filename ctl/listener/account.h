/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the numbers of the witness and of a guard's program mean, together and in words. Values
 * only: no system call is made here.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stddef.h>
#include <stdint.h>
#include <ferry/listener.h>
#include <ferry/witness.h>

/* Connections that ended with their listener, whether their client was still there or not. */
uint64_t account_lost(const __u64 n[WITNESS_COUNT]);

/*
 * Of a guarded listener. The program knows what it has decided about each connection of a closed
 * listener, the witness what the kernel then did:
 *
 *   queued = migrated + held + cancelled + lost + unexplained
 *   ended, as the witness sees it = cancelled + lost
 *
 * The kernel resets what the program cancels just as it resets what nobody was asked about; so lost
 * is what ended beyond that. Where a chosen listener was gone when its turn came, the kernel ends a
 * connection that the program has counted as given: it is lost, and unexplained is below 0 by as
 * many. Above 0: some went on that the program does not know of.
 */
struct account {
	uint64_t queued, migrated_alive, migrated_dead, held, cancelled, lost;
	int64_t unexplained; /* 0: every connection is accounted for */
};
/* counts: what the program has counted over the same time, or NULL: nobody guards. */
struct account account_of(const __u64 n[WITNESS_COUNT], const uint64_t counts[LISTENER_COUNT]);

void account_add(struct account *to, const struct account *a);
struct account account_less(const struct account *a, const struct account *b);

/* Of a program's name what is plain: the rest is '?'. */
void account_comm(const char comm[WITNESS_COMM], char text[WITNESS_COMM + 1]);
/* "0.0.0.0:80", "[::]:80"; netns: that of the reader, of which nothing is said. */
#define ACCOUNT_ADDRESS 96
const char *account_address(const struct witness_key *key, uint64_t netns,
			    char text[ACCOUNT_ADDRESS]);
/* "nginx (pid 12) closed 0.0.0.0:80: 37 clients reset" */
#define ACCOUNT_SENTENCE 512
const char *account_sentence(const struct witness_close *c, uint64_t netns,
			     char text[ACCOUNT_SENTENCE]);
/* Of many closes: "3 closes with 40 queued: 37 clients reset, 3 given to another listener" */
const char *account_sum(const __u64 n[WITNESS_COUNT], char text[ACCOUNT_SENTENCE]);
/* "client 192.0.2.1:40000 of 0.0.0.0:80 was reset" */
const char *account_client(const struct witness_client *w, uint64_t netns,
			   char text[ACCOUNT_SENTENCE]);

/* Words of a way and of a count, as keys of JSON. */
extern const char *const account_ways[3];
extern const char *const account_counts[WITNESS_COUNT];

#endif
