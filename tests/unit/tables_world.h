/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Units, words, records and flow tables on plain memory, and ctl/move/unit.c over them. Around it is
 * nothing: no netlink, no pins, no other node; sockets are numbers, in the network namespace that
 * the test says, and all have the one flow.
 */
#ifndef TABLES_WORLD_H
#define TABLES_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <netinet/in.h>
#include <cmocka.h>
#include "agent/access.h"
#include "agent/app.h"
#include "agent/space.h"
#include "move/unit.h"
#include "repair/repair.h"

#define UNITS 8

struct app {
	struct space *space;
};

static uint64_t offered_from; /* the namespace of the sockets, by the kernel */

struct space *app_space(const struct app *app)
{
	return app->space;
}

struct space *space_again(struct space *s)
{
	return s;
}

void space_release(struct agent *a, struct space *s)
{
	(void)a, (void)s;
}

int space_deliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
	return 0;
}

void space_undeliver(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
}

uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16]);
uint32_t space_device(struct agent *a, const struct space *s, const uint8_t addr[16])
{
	(void)a, (void)s, (void)addr;
	return 0;
}

uid_t app_uid(const struct app *app)
{
	(void)app;
	return 1000;
}

pid_t app_pid(const struct app *app)
{
	(void)app;
	return 1;
}

int access_offer(struct agent *a, const struct unit *u)
{
	(void)a, (void)u;
	return 0;
}

static const struct ferry_flow any_flow = {
	.saddr = { [10] = 0xff, 0xff, 198, 51, 100, 7 },
	.daddr = { [10] = 0xff, 0xff, 203, 0, 113, 10 },
	.sport = 0x1234,
	.dport = 0x5678,
	.proto = IPPROTO_TCP,
};

int repair_check(int fd, struct repair_image *image, const char **refusal)
{
	(void)fd, (void)refusal;
	image->flow = any_flow;
	return 0;
}

/* Of every socket here. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	uint64_t v = name == SO_NETNS_COOKIE ? offered_from : (uint64_t)fd;

	(void)level;
	assert_int_equal(*size, sizeof(v));
	memcpy(value, &v, sizeof(v));
	return 0;
}

static inline int no_grace(void *arg)
{
	(void)arg;
	return 0;
}

static inline void open_world(struct agent *a, struct config_node *self)
{
	struct table *t = &a->dp.flows;

	a->config.self = self;
	a->dp.control.units = UNITS;
	a->dp.words = calloc(UNITS, sizeof(*a->dp.words));
	a->dp.records = calloc(UNITS, sizeof(*a->dp.records));
	a->dp.unit_freed = calloc(UNITS, 1);
	t->buckets4 = t->buckets6 = UNITS;
	t->bucket4 = calloc(UNITS, sizeof(*t->bucket4));
	t->bucket6 = calloc(UNITS, sizeof(*t->bucket6));
	t->stash = -1;
	t->grace = no_grace;
	assert_int_equal(table_init(t), 0);
}

static inline void close_world(struct agent *a)
{
	while (a->units)
		unit_forget(a, a->units);
	free(a->dp.words);
	free(a->dp.records);
	free(a->dp.unit_freed);
	free(a->dp.flows.bucket4);
	free(a->dp.flows.bucket6);
	table_close(&a->dp.flows);
}

#endif
