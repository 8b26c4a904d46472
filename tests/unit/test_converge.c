/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an ingress makes of LEARN (ctl/move/converge.c): the newest one it hears, whole, also where an
 * agent that died while it entered the unit has left some of its flows out.
 */
#include <arpa/inet.h>
#include "tables_world.h"
#include "move/image.h"

#define FLOWS 3
#define OWNER 2

struct channel *nodes_channel(struct agent *a, uint32_t number)
{
	(void)a, (void)number;
	return NULL;
}

int channel_send(struct channel *c, enum message type, const Peer__Move *m,
		 const struct chunk *trailer, unsigned int chunks)
{
	(void)c, (void)type, (void)m, (void)trailer, (void)chunks;
	return 0;
}

void nodes_tell(struct agent *a, enum message type, const Peer__Move *m, uint32_t but,
		uint32_t and_but)
{
	(void)a, (void)type, (void)m, (void)but, (void)and_but;
}

void nodes_know(struct agent *a, uint32_t node, const ProtobufCBinaryData *uuids, size_t count)
{
	(void)a, (void)node, (void)uuids, (void)count;
}

bool nodes_known_whole(struct agent *a, uint32_t node)
{
	(void)a, (void)node;
	return false;
}

bool nodes_knows(struct agent *a, uint32_t node, const uint8_t uuid[16])
{
	(void)a, (void)node, (void)uuid;
	return false;
}

uint64_t nodes_greeted_ns(struct agent *a, uint32_t node)
{
	(void)a, (void)node;
	return 0;
}

void nodes_forget_known(struct agent *a, uint32_t node)
{
	(void)a, (void)node;
}

static struct ferry_flow flow_of(unsigned int i)
{
	struct ferry_flow f = any_flow;

	f.sport = htons((uint16_t)(40000 + i));
	return f;
}

static void hear(struct agent *a, uint8_t uuid[16], uint32_t epoch)
{
	Peer__Flow packed[FLOWS], *list[FLOWS];
	struct ferry_flow flows[FLOWS];
	Peer__Move m;

	peer__move__init(&m);
	m.uuid = (ProtobufCBinaryData){ 16, uuid };
	for (unsigned int i = 0; i < FLOWS; i++) {
		flows[i] = flow_of(i);
		flow_pack(&packed[i], &flows[i]);
		list[i] = &packed[i];
	}
	m.flows = list;
	m.n_flows = FLOWS;
	m.epoch = epoch;
	m.node = OWNER;
	converge_learn(a, &m);
}

static const struct {
	const char *name;
	bool ingress;
	unsigned int lacks; /* flows of the entry that is there, FLOWS + 1: there is none */
	uint32_t has, hears, then; /* epochs */
	unsigned int flows;        /* afterwards */
} rows[] = {
	{ "nothing yet", true, FLOWS + 1, 0, 5, 5, FLOWS },
	{ "nothing, and no ingress", false, FLOWS + 1, 0, 5, 0, 0 },
	{ "newer", true, 0, 3, 5, 5, FLOWS },
	{ "the same once more", true, 0, 5, 5, 5, FLOWS },
	{ "older", true, 0, 7, 5, 7, FLOWS },
	{ "a flow was left out", true, 1, 5, 5, 5, FLOWS },
	{ "all were left out", true, FLOWS, 5, 5, 5, FLOWS },
	{ "left out, and newer", true, 2, 3, 5, 5, FLOWS },
	{ "left out, but what is heard is older", true, 1, 7, 5, 7, FLOWS - 1 },
};

static void one(unsigned int i)
{
	struct config_node nodes[] = { { .number = 1, .ingress = rows[i].ingress },
				       { .number = OWNER } };
	struct agent a = { .config = { .nodes = nodes, .n_nodes = 2 } };
	uint8_t uuid[16] = "0123456789abcdef";
	unsigned int flows = 0;
	uint32_t index;

	open_world(&a, &nodes[0]);
	if (rows[i].lacks <= FLOWS)
		hear(&a, uuid, rows[i].has);
	for (unsigned int k = 0; rows[i].lacks <= FLOWS && k < rows[i].lacks; k++) {
		struct ferry_flow f = flow_of(k);

		assert_int_equal(table_delete(&a.dp.flows, &f), 0);
	}
	hear(&a, uuid, rows[i].hears);
	index = unit_by_uuid(&a.dp, uuid);
	for (unsigned int k = 0; k < FLOWS; k++) {
		struct ferry_flow f = flow_of(k);

		flows += index && table_find(&a.dp.flows, &f) == index;
	}
	printf("%s: unit %u, %u flows\n", rows[i].name, index, flows);
	assert_int_equal(flows, rows[i].flows);
	assert_true(unit_word(&a.dp, index) ==
		    (rows[i].then ? FERRY_WORD(rows[i].then, FERRY_REMOTE, OWNER) : 0));
	close_world(&a);
}

static void what_is_heard(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		one(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
