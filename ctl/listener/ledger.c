// SPDX-License-Identifier: BSD-2-Clause
/* Loads the witness and reads it; see ledger.h. Pins are in pin.c. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fault.h"
#include "base/util.h"
#include "listener/ledger.h"
#include "listener/pin.h"
#include "witness.skel.h"

const char *const ledger_fd_names[] = {
#define X(id, name) name,
	LEDGER_FDS(X)
#undef X
};

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

static int keep(int *to, int fd)
{
	*to = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *to < 0 ? -errno : 0;
}

static int map_totals(struct ledger *l)
{
	void *memory = mmap(NULL, sizeof(*l->state), PROT_READ | PROT_WRITE, MAP_SHARED,
			    l->fd[LEDGER_TOTALS], 0);

	if (memory == MAP_FAILED)
		return fail(l, -errno, "the counts cannot be mapped");
	l->state = memory;
	l->state->pid = (uint32_t)getpid();
	return 0;
}

static int load(struct ledger *l, bool clients)
{
	struct witness_bpf *p = witness_bpf__open();
	int r;

	if (!p)
		return fail(l, -errno, "the witness cannot be opened");
	l->programs = p;
	p->rodata->cfg_any = fault(FAULT_WITNESS_ANY) != 0;
	r = witness_bpf__load(p);
	if (r)
		return fail(l, r, "the witness cannot be loaded");
	if ((r = keep(&l->fd[LEDGER_ROWS], bpf_map__fd(p->maps.rows))) ||
	    (r = keep(&l->fd[LEDGER_TOTALS], bpf_map__fd(p->maps.totals))) ||
	    (r = keep(&l->fd[LEDGER_SOCKETS], bpf_map__fd(p->maps.sockets))) ||
	    (r = keep(&l->fd[LEDGER_RING], bpf_map__fd(p->maps.ring))))
		return fail(l, r, "the witness's maps cannot be kept");
	r = map_totals(l);
	if (r)
		return r;
	l->state->layout = WITNESS_LAYOUT;
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

static int open_ring(struct ledger *l)
{
	l->ring = ring_buffer__new(l->fd[LEDGER_RING], on_record, l, NULL);
	return l->ring ? 0 : fail(l, -errno, "the witness's ring cannot be read");
}

static void nothing(struct ledger *l)
{
	*l = (struct ledger){ .lock = -1 };
	for (int i = 0; i < LEDGER_FD_COUNT; i++)
		l->fd[i] = -1;
	libbpf_set_print(libbpf_quiet);
}

int ledger_open(struct ledger *l, const char *name, bool clients)
{
	int r;

	nothing(l);
	r = name ? pin_lock(l, name) : 0;
	if (r == -EBUSY)
		return r;
	l->pinned = name && !r;
	r = load(l, clients);
	if (!r)
		r = open_ring(l);
	if (r)
		ledger_close(l);
	return r;
}

static int attach(struct bpf_program *program, int *fd)
{
	struct bpf_link *link = bpf_program__attach(program);
	int r = link ? keep(fd, bpf_link__fd(link)) : -errno;

	bpf_link__destroy(link); /* ours keeps it attached */
	return r;
}

int ledger_start(struct ledger *l)
{
	struct witness_bpf *p = l->programs;
	int r;

	l->state->begun = l->state->alive = boottime_ns();
	if (l->pinned)
		l->pinned = !pin_maps(l, l->fd[LEDGER_ROWS], l->fd[LEDGER_TOTALS]);
	/* a close whose beginning is seen has its end seen, too */
	r = attach(p->progs.destroy, &l->fd[LEDGER_DESTROY]);
	r = r ? r : attach(p->progs.report, &l->fd[LEDGER_REPORT]);
	r = r ? r : attach(p->progs.state, &l->fd[LEDGER_STATE]);
	return r ? fail(l, r, "the witness cannot be attached") : 0;
}

int ledger_adopt(struct ledger *l)
{
	int fd[LEDGER_FD_COUNT], r;

	memcpy(fd, l->fd, sizeof(fd));
	nothing(l);
	memcpy(l->fd, fd, sizeof(fd));
	for (int i = 0; i < LEDGER_FD_COUNT; i++)
		if (fd[i] < 0)
			return fail(l, -EBADF, "what another process has watched with is not whole");
	r = map_totals(l);
	if (!r && l->state->layout != WITNESS_LAYOUT)
		r = fail(l, -EPROTO, "another version of ferry has watched");
	r = r ? r : open_ring(l);
	if (r && l->state) {
		munmap(l->state, sizeof(*l->state));
		l->state = NULL;
	}
	return r;
}

int ledger_poll_fd(const struct ledger *l)
{
	return ring_buffer__epoll_fd(l->ring);
}

int ledger_poll(struct ledger *l, int ms)
{
	int n = ring_buffer__poll(l->ring, ms);

	l->state->alive = boottime_ns();
	return n;
}

/* Of the program behind a link; 0 where that may not be asked. */
static uint64_t missed(int link)
{
	struct bpf_link_info l = {};
	struct bpf_prog_info p = {};
	uint32_t size = sizeof(l);
	_cleanup_close_ int fd = -1;

	if (bpf_obj_get_info_by_fd(link, &l, &size))
		return 0;
	fd = bpf_prog_get_fd_by_id(l.prog_id);
	size = sizeof(p);
	return fd < 0 || bpf_obj_get_info_by_fd(fd, &p, &size) ? 0 : p.recursion_misses;
}

static uint64_t missed_by(const struct bpf_program *program)
{
	struct bpf_prog_info p = {};
	uint32_t size = sizeof(p);

	return bpf_obj_get_info_by_fd(bpf_program__fd(program), &p, &size) ? 0 : p.recursion_misses;
}

uint64_t ledger_missed(const struct ledger *l)
{
	const struct witness_bpf *p = l->programs;

	if (p)
		return missed_by(p->progs.state) + missed_by(p->progs.report) +
		       missed_by(p->progs.destroy);
	return missed(l->fd[LEDGER_STATE]) + missed(l->fd[LEDGER_REPORT]) +
	       missed(l->fd[LEDGER_DESTROY]);
}

int ledger_rows(const struct ledger *l, ledger_visit visit, void *data)
{
	struct ledger_view v = { .rows = l->fd[LEDGER_ROWS] };

	return ledger_view_rows(&v, visit, data);
}

int ledger_row(const struct ledger *l, const struct witness_key *key, struct witness_close *row)
{
	return bpf_map_lookup_elem(l->fd[LEDGER_ROWS], key, row) ? -errno : 0;
}

int ledger_socket(const struct ledger *l, uint64_t cookie, struct witness_close *row)
{
	return bpf_map_lookup_elem(l->fd[LEDGER_SOCKETS], &cookie, row) ? -errno : 0;
}

void ledger_close(struct ledger *l)
{
	close_fd(&l->fd[LEDGER_STATE]); /* no close begins from here on */
	ring_buffer__free(l->ring);
	if (l->state) {
		l->state->ended = boottime_ns();
		munmap(l->state, sizeof(*l->state));
	}
	for (int i = 0; i < LEDGER_FD_COUNT; i++)
		close_fd(&l->fd[i]);
	witness_bpf__destroy(l->programs);
	close_fd(&l->lock);
	l->programs = NULL;
	l->ring = NULL;
	l->state = NULL;
}
