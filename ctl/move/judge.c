// SPDX-License-Identifier: BSD-2-Clause
/*
 * The destination's part of a dry run: what destination_preflight() and destination_lent() ask, of
 * every socket, whatever the others' answers are. The application lends empty sockets as for a
 * move, so that the kernel can say whether each tuple is free; they are given back with the
 * answer.
 */
#include <errno.h>
#include "agent/app.h"
#include "agent/space.h"
#include "base/util.h"
#include "move/dry_run.h"
#include "move/image.h"

static void judge_socket(struct move *m, unsigned int i, uint32_t packet)
{
	struct dry_socket *s = &m->dry->sockets[i];

	admit_flow(m, i);
	dry_run_note(m, i, THERE);
	admit_way(m, i, packet, &s->mtu);
	dry_run_note(m, i, THERE);
	if (s->said[THERE].refusal)
		return; /* it may be no address for here */
	s->address = m->space && !space_deliver(m->agent, m->space, m->images[i].flow.daddr);
	if (!s->address)
		move_refuse(m, "addr-unavailable", "socket %u", i);
	dry_run_note(m, i, THERE);
}

int dry_run_judge(struct move *m, const Peer__Move *msg)
{
	if (dry_run_new(m))
		return move_refuse(m, "no-memory", "%s", "");
	m->epoch = msg->epoch;
	if (images_unpack(m->images, m->count, msg, NULL, 0))
		return move_refuse(m, "protocol", "PREFLIGHT does not decode");
	m->dry->room[THERE] = nexthop_room(&m->agent->dp, m->peer);
	destination_check_room(m, msg->packet);
	dry_run_note_unit(m, THERE);
	admit_unit(m);
	dry_run_note_unit(m, THERE);
	admit_space(m);
	dry_run_note_unit(m, THERE);
	m->app = app_by_kind(m->agent, msg->kind);
	m->space = m->app ? space_again(app_space(m->app)) :
			    space_hold(m->agent, m->agent->netns);
	for (unsigned int i = 0; i < m->count; i++)
		judge_socket(m, i, msg->packet);
	if (m->app)
		return destination_lend(m);
	move_refuse(m, "app-missing", "kind '%.31s'", msg->kind);
	dry_run_note_unit(m, THERE);
	dry_run_reply(m);
	return STAGE_DONE;
}

void dry_run_lent(struct move *m, int *fds, int r)
{
	dry_run_note_unit(m, THERE);
	for (unsigned int i = 0; !r && i < m->count; i++) {
		destination_check_lent(m, fds, i);
		dry_run_note(m, i, THERE);
	}
	for (unsigned int i = 0; !r && i < m->count; i++) {
		int e;

		if (m->dry->sockets[i].said[THERE].refusal)
			continue; /* not ours to touch, or no address to bind it to */
		m->fds[i] = TAKE_FD(fds[i]);
		e = repair_claim(m->fds[i], &m->images[i]);
		if (e)
			destination_socket_failed(m, i, e);
		dry_run_note(m, i, THERE);
	}
	dry_run_reply(m);
	move_free(m);
}

static void pack(Peer__Verdict *to, const struct dry_verdict *v)
{
	peer__verdict__init(to);
	if (!v->refusal)
		return;
	to->refusal = (char *)v->refusal;
	to->detail = (char *)v->detail;
}

static void send_verdicts(struct move *m)
{
	Peer__Verdict sockets[FERRY_UNIT_SOCKETS], unit[DRY_RUN_REASONS];
	Peer__Verdict *socket_list[FERRY_UNIT_SOCKETS], *unit_list[DRY_RUN_REASONS];
	Peer__Move msg;

	for (unsigned int i = 0; i < m->count; i++) {
		pack(&sockets[i], &m->dry->sockets[i].said[THERE]);
		sockets[i].mtu = m->dry->sockets[i].mtu;
		socket_list[i] = &sockets[i];
	}
	for (unsigned int i = 0; i < m->dry->reasons; i++) {
		pack(&unit[i], &m->dry->unit[i].verdict);
		unit_list[i] = &unit[i];
	}
	move_address(m, &msg);
	msg.room = m->dry->room[THERE];
	msg.n_verdicts = m->count;
	msg.verdicts = socket_list;
	msg.n_unit_verdicts = m->dry->reasons;
	msg.unit_verdicts = unit_list;
	channel_send(m->channel, MSG_READY, &msg, NULL, 0);
}

void dry_run_reply(struct move *m)
{
	if (m->channel)
		send_verdicts(m);
	destination_discard(m);
}

void dry_run_release(struct move *m)
{
	for (unsigned int i = 0; i < m->count; i++)
		if (m->dry->sockets[i].address)
			space_undeliver(m->agent, m->space, m->images[i].flow.daddr);
}
