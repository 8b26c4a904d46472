// SPDX-License-Identifier: BSD-2-Clause
/*
 * Commands that need the agent: one JSON object in, one out, keys as `ferry -j` prints them.
 * Reading commands are not here: the command line reads the pins.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "agent/access.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"
#include "move/refusal.h"

void command_answer(int fd, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

	if (text && send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_info("a command went away before its answer");
	free(text);
	json_decref(object);
	close(fd);
}

static void failed(int fd, const char *refusal, const char *detail)
{
	command_answer(fd, json_pack("{s:s, s:s, s:s}", "error", refusal, "text",
				     refusal_text(refusal), "detail", detail ? detail : ""));
}

/* Both clocks are this boot's where the nodes share a kernel; else when DONE came is the bound. */
static double freeze_us(const struct move *m)
{
	const uint8_t *boot = nodes_boot(m->agent, m->peer);
	bool same = boot && !memcmp(boot, m->agent->boot, 16) && m->local_ns > m->fenced_ns;
	uint64_t end = same ? m->local_ns : boottime_ns();

	return (double)(end - m->fenced_ns) / 1000;
}

void command_moved(int fd, const struct move *m, const char *failure, const char *detail)
{
	const struct config_node *to = config_node_by_number(&m->agent->config, m->peer);
	char uuid[UUID_TEXT];

	uuid_text(m->uuid, uuid);
	if (failure) {
		if (fd >= 0)
			failed(fd, failure, detail);
		return;
	}
	estimate_learn(&m->agent->freezes, freeze_us(m), m->count,
		       m->queued[0] + m->queued[1] + m->queued[2]);
	log_info("unit %s moved to %s: %u sockets, %.0f us frozen", uuid, to->name, m->count,
		 freeze_us(m));
	if (fd < 0)
		return;
	command_answer(
		fd,
		json_pack("{s:s, s:s, s:s, s:I, s:i, s:i, s:f, s:{s:I, s:I, s:I}, s:I, s:I, s:I}",
			  "unit", uuid, "from", m->agent->config.self->name, "to", to->name,
			  "epoch", (json_int_t)m->epoch + 1, "sockets", (int)m->count, "extracted",
			  m->again ? 2 : 1, "freeze_us", freeze_us(m), "queued_bytes", "recv",
			  (json_int_t)m->queued[0], "sent", (json_int_t)m->queued[1], "unsent",
			  (json_int_t)m->queued[2], "lost_in_freeze",
			  (json_int_t)(unit_record(&m->agent->dp, m->index)->lost - m->lost_before +
				       m->lost_there),
			  "fenced_ns", (json_int_t)m->fenced_ns, "local_ns",
			  (json_int_t)m->local_ns));
}

/* For a person who asks the wrong node. */
static const char *whereabouts(struct agent *a, const uint8_t uuid[16], char *text, size_t size)
{
	uint32_t index = unit_by_uuid(&a->dp, uuid);
	uint64_t word = index ? unit_word(&a->dp, index) : 0;
	const struct config_node *n = config_node_by_number(&a->config, FERRY_WORD_HOP(word));

	if (index && FERRY_WORD_STATE(word) == FERRY_REMOTE && n)
		snprintf(text, size, "it lives on node %s: ask there", n->name);
	else
		snprintf(text, size, "not in the tables of node %s", a->config.self->name);
	return text;
}

/* start: move_start() or move_dry_run() */
static void run_move(struct agent *a, int fd, const char *unit, const char *to,
		     typeof(move_start) *start)
{
	const struct config_node *node = config_node_by_name(&a->config, to);
	const char *refusal;
	uint8_t uuid[16] = {};
	struct unit *u;
	char where[96];

	u = uuid_parse_text(unit, uuid) ? NULL : unit_find(a, uuid);
	if (!u || !u->app)
		failed(fd, "no-such-unit", whereabouts(a, uuid, where, sizeof(where)));
	else if (access_command(fd, u, "move"))
		failed(fd, "not-allowed", "");
	else if (!node)
		failed(fd, "no-such-node", to);
	else if (start(a, u, node->number, fd, &refusal))
		failed(fd, refusal, to);
}

static void ping(struct agent *a, int fd)
{
	const char *missing;
	unsigned int connected = nodes_connected(a, &missing);
	json_t *refused = json_object();

	for (enum peer_reason r = PEER_NONE + 1; r < PEER_REASONS; r++)
		if (peers_count(a, r))
			json_object_set_new(refused, peer_reason_id(r),
					    json_integer((json_int_t)peers_count(a, r)));
	command_answer(fd, json_pack("{s:s, s:i, s:i, s:s*, s:i, s:i, s:o}", "node",
				     a->config.self->name, "pid", (int)getpid(), "connected",
				     (int)connected, "missing", missing, "channels",
				     (int)a->channels.count, "moves", (int)moves_count(a),
				     "peers_refused", refused));
}

void command_run(struct agent *a, int fd, const char *request, size_t size)
{
	const char *verb = "", *unit = "", *to = "";
	json_t *object = json_loadb(request, size, 0, NULL);

	if (!object || json_unpack(object, "{s:s, s?s, s?s}", "command", &verb, "unit", &unit,
				   "to", &to))
		failed(fd, "bad-command", "a JSON object with a command is wanted");
	else if (!strcmp(verb, "move"))
		run_move(a, fd, unit, to, move_start);
	else if (!strcmp(verb, "dry-run"))
		run_move(a, fd, unit, to, move_dry_run);
	else if (!strcmp(verb, "ping"))
		ping(a, fd);
	else
		failed(fd, "bad-command", "no such command");
	json_decref(object);
}
