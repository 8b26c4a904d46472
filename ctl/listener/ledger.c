// SPDX-License-Identifier: BSD-2-Clause
/* Loads the witness and reads it; see ledger.h. Pins are in pin.c. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fault.h"
#include "base/util.h"
#include "listener/ledger.h"
#include "listener/pin.h"
#include "witness.skel.h"

static int libbpf_quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0; /* what fails is told by ledger.error */
}

static int fail(struct ledger *l, int r, const char *what)
{
	snprintf(l->error, sizeof(l->error),
		 "%s: %s; CAP_BPF and CAP_PERFMON are needed (be root), "
		 "and Linux 6.1 with BTF (/sys/kernel/btf/vmlinux)",
		 what, strerror(-r));
	return r;
}

static int load(struct ledger *l, bool clients)
{
	struct witness_bpf *p = witness_bpf__open();
	void *memory;
	int r;

	if (!p)
		return fail(l, -errno, "the witness cannot be opened");
	l->programs = p;
	p->rodata->cfg_any = fault(FAULT_WITNESS_ANY) != 0;
	r = witness_bpf__load(p);
	if (r)
		return fail(l, r, "the witness cannot be loaded");
	memory = mmap(NULL, sizeof(*l->state), PROT_READ | PROT_WRITE, MAP_SHARED,
		      bpf_map__fd(p->maps.totals), 0);
	if (memory == MAP_FAILED)
		return fail(l, -errno, "the counts cannot be mapped");
	l->state = memory;
	l->state->layout = WITNESS_LAYOUT;
	l->state->pid = (uint32_t)getpid();
	l->state->clients = clients;
	return 0;
}

static int on_record(void *data, void *record, size_t size)
{
	const struct ledger *l = data;
	const uint32_t *kind = record;

	if (*kind == WITNESS_CLOSE && size >= sizeof(struct witness_close) && l->closed)
		l->closed(record, l->data);
	if (*kind == WITNESS_CLIENT && size >= sizeof(struct witness_client) && l->client)
		l->client(record, l->data);
	return 0;
}

int ledger_open(struct ledger *l, const char *name, bool clients)
{
	int r;

	*l = (struct ledger){ .lock = -1 };
	libbpf_set_print(libbpf_quiet);
	r = name ? pin_lock(l, name) : 0;
	if (r == -EBUSY)
		return r;
	l->pinned = name && !r;
	r = load(l, clients);
	if (!r) {
		l->ring = ring_buffer__new(bpf_map__fd(l->programs->maps.ring), on_record, l, NULL);
		if (!l->ring)
			r = fail(l, -errno, "the witness's ring cannot be read");
	}
	if (r)
		ledger_close(l);
	return r;
}

int ledger_start(struct ledger *l)
{
	struct witness_bpf *p = l->programs;
	int r;

	l->state->begun = l->state->alive = boottime_ns();
	if (l->pinned)
		l->pinned = !pin_maps(l, bpf_map__fd(p->maps.rows), bpf_map__fd(p->maps.totals));
	/* a close whose beginning is seen has its end seen, too */
	p->links.destroy = bpf_program__attach(p->progs.destroy);
	p->links.report = p->links.destroy ? bpf_program__attach(p->progs.report) : NULL;
	p->links.state = p->links.report ? bpf_program__attach(p->progs.state) : NULL;
	r = p->links.state ? 0 : -errno;
	return r ? fail(l, r, "the witness cannot be attached") : 0;
}

int ledger_poll(struct ledger *l, int ms)
{
	int n = ring_buffer__poll(l->ring, ms);

	l->state->alive = boottime_ns();
	return n;
}

uint64_t ledger_missed(const struct ledger *l)
{
	const struct bpf_program *programs[] = { l->programs->progs.state,
						 l->programs->progs.report,
						 l->programs->progs.destroy };
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		struct bpf_prog_info info = {};
		uint32_t size = sizeof(info);

		if (!bpf_obj_get_info_by_fd(bpf_program__fd(programs[i]), &info, &size))
			sum += info.recursion_misses;
	}
	return sum;
}

int ledger_rows(const struct ledger *l, ledger_visit visit, void *data)
{
	struct ledger_view v = { .rows = bpf_map__fd(l->programs->maps.rows) };

	return ledger_view_rows(&v, visit, data);
}

int ledger_socket(const struct ledger *l, uint64_t cookie, struct witness_close *row)
{
	return bpf_map_lookup_elem(bpf_map__fd(l->programs->maps.sockets), &cookie, row) ? -errno :
											   0;
}

void ledger_close(struct ledger *l)
{
	if (l->programs) {
		bpf_link__destroy(l->programs->links.state);
		l->programs->links.state = NULL; /* no close begins from here on */
		witness_bpf__detach(l->programs);
	}
	ring_buffer__free(l->ring);
	if (l->state) {
		l->state->ended = boottime_ns();
		munmap(l->state, sizeof(*l->state));
	}
	witness_bpf__destroy(l->programs);
	close_fd(&l->lock);
	l->programs = NULL;
	l->ring = NULL;
	l->state = NULL;
}
