// SPDX-License-Identifier: BSD-2-Clause
/*
 * A unit that its application has given up is not gone: its sockets still say goodbye, and the
 * client's answers must find them. Its entries and addresses go, and the other nodes are told,
 * when the kernel holds none of its sockets any more, TIME_WAIT included. So it is with a unit of
 * an earlier agent, and with a move of one, until an application brings their sockets (resume.c).
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include "agent/space.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"
#include "net/diag.h"

#define LOOK_US 250000
#define LOOK_UNITS 1024 /* a look, at about 10 us each: where there are more, they take turns */
/* Sockets of a process that is gone, where nobody can be asked: FIN_WAIT and TIME_WAIT over. */
#define UNSEEN_NS (180 * SEC_NS)
#define GONE_LOOKS 20 /* of so many looks one is for units that are GONE */

static bool over(const struct space *s, const struct ferry_flow *flow)
{
	return space_has_socket(s, flow) == 0; /* else there, or not known now */
}

static bool process_gone(struct agent *a, const struct unit *u)
{
	return kill((pid_t)unit_record(&a->dp, u->index)->app, 0) && errno == ESRCH;
}

/* Its namespace cannot be asked, as no application of it has come (back). */
static bool unseen(struct agent *a, const struct unit *u)
{
	return !u->space->own && u->space->diag < 0 && boottime_ns() - u->since_ns > UNSEEN_NS &&
	       process_gone(a, u);
}

static bool unit_ended(struct agent *a, const struct unit *u)
{
	for (unsigned int i = 0; i < u->count; i++)
		if (!over(u->space, &u->flows[i]))
			return unseen(a, u);
	return true;
}

static bool move_ended(const struct move *m)
{
	for (unsigned int i = 0; i < m->count; i++)
		if (!over(m->space, &m->images[i].flow))
			return false;
	return true;
}

/* FENCED: it was not flipped, and never will be. Whoever is in doubt hears "no". */
static void go_nowhere(struct agent *a, struct unit *u)
{
	uint64_t word = unit_word(&a->dp, u->index);

	unit_record(&a->dp, u->index)->deadline = boottime_ns() + GONE_NS;
	unit_swap(&a->dp, u->index, word, FERRY_WORD(FERRY_WORD_EPOCH(word) + 2, FERRY_GONE, 0));
	unit_undeliver(a, u);
	unit_forget(a, u);
}

/* Its application ended while no agent was there; what the kernel still has of its sockets was
 * never frozen, else it were gone, too. Their FINs have to get out. */
static void let_go(struct agent *a, struct unit *u)
{
	uint64_t word = unit_word(&a->dp, u->index), opening = word;
	uint32_t epoch = FERRY_WORD_EPOCH(word);

	if (FERRY_WORD_STATE(word) == FERRY_LOCAL || !process_gone(a, u))
		return;
	if (FERRY_WORD_STATE(word) == FERRY_FENCED) {
		epoch += 2;
		opening = FERRY_WORD(epoch, FERRY_OPENING, FERRY_WORD_HOP(word));
		unit_swap(&a->dp, u->index, word, opening);
	}
	unit_swap(&a->dp, u->index, opening, FERRY_WORD(epoch, FERRY_LOCAL, 0));
}

static bool is_left(const struct unit *u)
{
	return !u->app && !u->move;
}

static void look_at_units(struct agent *a, unsigned int look)
{
	unsigned int left = 0, turns;

	for (const struct unit *u = a->units; u; u = u->next)
		left += is_left(u);
	turns = left / LOOK_UNITS + 1;
	for (struct unit *u = a->units, *next; u; u = next) {
		char uuid[UUID_TEXT];

		next = u->next;
		if (!is_left(u) || u->index % turns != look % turns)
			continue;
		if (!unit_ended(a, u)) {
			let_go(a, u);
			continue;
		}
		log_info("unit %s has ended", uuid_text(u->uuid, uuid));
		if (FERRY_WORD_STATE(unit_word(&a->dp, u->index)) == FERRY_FENCED)
			go_nowhere(a, u);
		else
			unit_withdraw(a, u);
	}
}

/* Prepared, by an earlier agent, too, for an application that is gone with the sockets. */
static void look_at_moves(struct agent *a)
{
	for (struct move *m = a->moves, *next; m; m = next) {
		next = m->next;
		if (m->origin || !m->prepared || m->app || !move_ended(m))
			continue;
		move_refuse(m, "app-gone", "%s", "and its sockets with it");
		m->channel = nodes_channel(a, m->peer);
		move_fail(m);
	}
}

static void forget_gone(struct agent *a)
{
	uint64_t now = boottime_ns();

	for (uint32_t i = 1; i < a->dp.control.units; i++) {
		uint64_t word = unit_word(&a->dp, i);
		struct ferry_record *r = unit_record(&a->dp, i);

		if (FERRY_WORD_STATE(word) != FERRY_GONE || r->deadline > now)
			continue;
		converge_forget(a, r->uuid, FERRY_WORD_EPOCH(word));
		unit_drop(a, i);
	}
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
	static unsigned int looks;
	struct agent *a = arg;

	(void)usec;
	look_at_units(a, looks);
	look_at_moves(a);
	if (++looks % GONE_LOOKS == 0)
		forget_gone(a);
	sd_event_source_set_time_relative(s, LOOK_US);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

int ending_start(struct agent *a)
{
	int r;

	if (!diag_answers(IPPROTO_TCP) || !diag_answers(IPPROTO_UDP)) {
		log_error("the kernel does not tell which sockets there are, so that nobody would "
			  "know when a unit has ended: modprobe -a tcp_diag udp_diag");
		return -EOPNOTSUPP;
	}
	r = sd_event_add_time_relative(a->event, NULL, CLOCK_MONOTONIC, LOOK_US, 0, on_timer, a);
	return r < 0 ? r : 0;
}
