/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A dry run: the first two stages of a move, borrow and preflight, with every check of both sides
 * made and none of them ending it. What a check says is noted for its socket, or for the unit; the
 * destination answers all it found with READY.
 * Invariant: nothing is frozen, asked to rest, or written to a table on either side; what was lent,
 * borrowed or made deliverable for it is given back before it ends.
 */
#ifndef MOVE_DRY_RUN_H
#define MOVE_DRY_RUN_H

#include "move/move.h"

#define DRY_RUN_STEPS 2 /* borrow and preflight: the first two in every order of stages */
#define DRY_RUN_REASONS 8

enum { HERE, THERE }; /* origin, destination */

struct dry_verdict {
	const char *refusal; /* NULL: none */
	char detail[160];
};

struct dry_socket {
	struct dry_verdict said[2];
	uint32_t queued[3]; /* recv, sent, unsent octets */
	uint32_t mtu;       /* of the route from there to the client, 0 not known */
	bool address;       /* destination: it was made deliverable for it */
};

struct dry_run {
	bool answered; /* the destination has judged */
	uint32_t room[2]; /* octets that the tunnel there, and back, holds; 0 not known */
	unsigned int reasons;
	struct {
		int side;
		struct dry_verdict verdict;
	} unit[DRY_RUN_REASONS]; /* what stands against the whole unit */
	struct dry_socket sockets[]; /* as many as the move has */
};

/* Makes the move a dry run. 0 or -ENOMEM. */
int dry_run_new(struct move *m);
bool dry_run_would_move(const struct move *m);

/* origin */
int dry_run_preflight(struct move *m);
void dry_run_answered(struct move *m, const Peer__Move *msg);
/* All is known: answers the command and frees the move. */
void dry_run_end(struct move *m);
/* Either side: it cannot go on, by m->refusal. Ends it, with what is known. */
void dry_run_fail(struct move *m);

/* destination: judge.c */
int dry_run_judge(struct move *m, const Peer__Move *msg);
/* r: STAGE_DONE, or the lent sockets are not as many as were asked for. Frees the move. */
void dry_run_lent(struct move *m, int *fds, int r);
/* Tells the origin what was found, and gives all back. */
void dry_run_reply(struct move *m);
void dry_run_release(struct move *m);

/* Takes m->refusal, if there is one, as said by that side of a socket, or of the unit. */
void dry_run_note(struct move *m, unsigned int i, int side);
void dry_run_note_unit(struct move *m, int side);

#endif
