// SPDX-License-Identifier: BSD-2-Clause
/* The answer to a dry run, keys as `ferry -j move --dry-run` prints them. */
#include <stdio.h>
#include "agent/agent.h"
#include "base/log.h"
#include "base/util.h"
#include "move/dry_run.h"
#include "move/refusal.h"

static const char *name(const struct move *m, int side)
{
	return side == HERE ? m->agent->config.self->name :
			      config_node_by_number(&m->agent->config, m->peer)->name;
}

static json_t *mtu(const struct move *m, const struct dry_socket *s)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "packet", (json_int_t)m->agent->config.packet,
			 "tunnel", (json_int_t)m->dry->room[HERE], "tunnel_back",
			 (json_int_t)m->dry->room[THERE], "route", (json_int_t)s->mtu);
}

static json_t *socket_object(const struct move *m, unsigned int i)
{
	const struct dry_socket *s = &m->dry->sockets[i];
	const struct dry_verdict *v = &s->said[s->said[HERE].refusal ? HERE : THERE];
	const char *here = s->said[HERE].refusal, *there = s->said[THERE].refusal;
	char flow[FLOW_TEXT];

	return json_pack("{s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:{s:I, s:I, s:I}, s:o}", "flow",
			 flow_text(&m->images[i].flow, flow), "role", m->images[i].role, "move",
			 !v->refusal, "reason", v->refusal ? v->refusal : "", "text",
			 v->refusal ? refusal_text(v->refusal) : "", "detail", v->detail, "origin",
			 here ? here : "ok", "destination",
			 there            ? there :
			 m->dry->answered ? "ok" :
					    "not-asked",
			 "queued", "recv", (json_int_t)s->queued[0], "sent",
			 (json_int_t)s->queued[1], "unsent", (json_int_t)s->queued[2], "mtu",
			 mtu(m, s));
}

static json_t *reasons(const struct move *m)
{
	json_t *rows = json_array();

	for (unsigned int i = 0; i < m->dry->reasons; i++) {
		const struct dry_verdict *v = &m->dry->unit[i].verdict;

		json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s}", "node",
						      name(m, m->dry->unit[i].side), "reason",
						      v->refusal, "text", refusal_text(v->refusal),
						      "detail", v->detail));
	}
	return rows;
}

static json_t *freeze_from(const struct estimate *e)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:i}", "fixed_us", ESTIMATE_FIXED_US, "socket_us",
			 ESTIMATE_SOCKET_US, "octet_ns", ESTIMATE_OCTET_NS, "factor",
			 estimate_factor(e), "moves",
			 (int)(e->count < ESTIMATE_KEPT ? e->count : ESTIMATE_KEPT));
}

void command_judged(int fd, const struct move *m)
{
	const struct estimate *e = &m->agent->freezes;
	json_t *sockets = json_array();
	uint64_t octets = 0;
	char uuid[UUID_TEXT];

	for (unsigned int i = 0; i < m->count; i++) {
		json_array_append_new(sockets, socket_object(m, i));
		for (int q = 0; q < 3; q++)
			octets += m->dry->sockets[i].queued[q];
	}
	command_answer(fd, json_pack("{s:s, s:s, s:s, s:b, s:f, s:o, s:{s:I, s:I, s:I}, s:o, s:o}",
				     "unit", uuid_text(m->uuid, uuid), "from", name(m, HERE), "to",
				     name(m, THERE), "would_move", dry_run_would_move(m),
				     "freeze_us", estimate_freeze_us(e, m->count, octets),
				     "freeze_from", freeze_from(e), "mtu", "packet",
				     (json_int_t)m->agent->config.packet, "tunnel",
				     (json_int_t)m->dry->room[HERE], "tunnel_back",
				     (json_int_t)m->dry->room[THERE], "reasons", reasons(m),
				     "sockets", sockets));
}
