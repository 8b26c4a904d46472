// SPDX-License-Identifier: BSD-2-Clause
/*
 * The origin's part of a dry run, and its notes; see dry_run.h. The queues are measured as the
 * kernel counts them while the application goes on: they are those of one moment.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include "base/util.h"
#include "move/dry_run.h"
#include "move/refusal.h"

int dry_run_new(struct move *m)
{
	m->dry = calloc(1, sizeof(*m->dry) + m->count * sizeof(m->dry->sockets[0]));
	return m->dry ? 0 : -ENOMEM;
}

static void take(struct move *m, struct dry_verdict *to)
{
	/* the first reason is the one that a move would be refused by */
	if (!to->refusal && m->refusal) {
		to->refusal = m->refusal;
		snprintf(to->detail, sizeof(to->detail), "%.*s", (int)sizeof(to->detail) - 1,
			 m->detail);
	}
	m->refusal = NULL;
	m->detail[0] = 0;
}

void dry_run_note(struct move *m, unsigned int i, int side)
{
	take(m, &m->dry->sockets[i].said[side]);
}

void dry_run_note_unit(struct move *m, int side)
{
	struct dry_run *d = m->dry;

	if (!m->refusal || d->reasons == DRY_RUN_REASONS)
		return;
	d->unit[d->reasons].side = side;
	take(m, &d->unit[d->reasons++].verdict);
}

bool dry_run_would_move(const struct move *m)
{
	if (m->dry->reasons || !m->dry->answered)
		return false;
	for (unsigned int i = 0; i < m->count; i++)
		if (m->dry->sockets[i].said[HERE].refusal || m->dry->sockets[i].said[THERE].refusal)
			return false;
	return true;
}

static uint32_t queue(int fd, unsigned long request)
{
	int n = 0;

	return ioctl(fd, request, &n) || n < 0 ? 0 : (uint32_t)n;
}

/* Of UDP the kernel tells the first datagram. */
static void measure(struct move *m, unsigned int i)
{
	struct dry_socket *s = &m->dry->sockets[i];
	bool tcp = m->images[i].flow.proto == IPPROTO_TCP;
	uint32_t outq = queue(m->fds[i], SIOCOUTQ);

	s->queued[0] = queue(m->fds[i], SIOCINQ);
	s->queued[2] = tcp ? queue(m->fds[i], SIOCOUTQNSD) : 0;
	s->queued[1] = outq > s->queued[2] ? outq - s->queued[2] : 0;
	if (s->queued[0] > REPAIR_QUEUE_MAX || outq > REPAIR_QUEUE_MAX)
		move_refuse(m, "queue-too-big", "socket %u: %u octets received, %u to be sent", i,
			    s->queued[0], outq);
}

static void judge_socket(struct move *m, unsigned int i)
{
	struct repair_image *image = &m->images[i];

	if (origin_check_socket(m, i)) {
		/* the destination is asked of what was offered */
		image->flow = m->unit->flows[i];
		image->connected = image->flow.sport != 0;
		image->v6_socket |= !addr_is_v4(image->flow.daddr);
		memcpy(image->role, m->unit->roles[i], sizeof(image->role));
	}
	dry_run_note(m, i, HERE);
	measure(m, i);
	dry_run_note(m, i, HERE);
}

int dry_run_preflight(struct move *m)
{
	for (unsigned int i = 0; i < m->count; i++)
		judge_socket(m, i);
	m->dry->room[HERE] = nexthop_room(&m->agent->dp, m->peer);
	origin_check_room(m);
	if (!m->channel)
		move_refuse(m, "node-down", "it was not asked");
	dry_run_note_unit(m, HERE);
	return m->channel ? origin_ask(m) : STAGE_DONE;
}

/* A peer's words go to the log and into JSON. */
static void say(struct move *m, const Peer__Verdict *v)
{
	m->refusal = NULL;
	if (v->refusal[0])
		move_refuse(m, refusal_id(v->refusal), "%s", v->detail);
}

void dry_run_answered(struct move *m, const Peer__Move *msg)
{
	struct dry_run *d = m->dry;

	if (msg->n_verdicts != m->count) { /* it has lent sockets, as for a move */
		move_refuse(m, "protocol", "the agent there knows no dry run");
		dry_run_note_unit(m, THERE);
		move_send(m, MSG_ABORT);
		return;
	}
	d->answered = true;
	d->room[THERE] = msg->room;
	for (size_t i = 0; i < msg->n_unit_verdicts; i++) {
		say(m, msg->unit_verdicts[i]);
		dry_run_note_unit(m, THERE);
	}
	for (unsigned int i = 0; i < m->count; i++) {
		d->sockets[i].mtu = msg->verdicts[i]->mtu;
		say(m, msg->verdicts[i]);
		dry_run_note(m, i, THERE);
	}
}

void dry_run_end(struct move *m)
{
	command_judged(TAKE_FD(m->command), m);
	move_free(m);
}

void dry_run_fail(struct move *m)
{
	dry_run_note_unit(m, m->origin ? HERE : THERE);
	if (!m->origin) {
		dry_run_reply(m);
		move_free(m);
		return;
	}
	if (m->told)
		move_send(m, MSG_ABORT);
	dry_run_end(m);
}
