// SPDX-License-Identifier: BSD-2-Clause
/*
 * See upgrade.h. A configuration that is wrong, or a program that cannot be run, is said, and the
 * agent that is there goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include "agent/upgrade.h"
#include "base/log.h"
#include "base/util.h"
#include "move/move.h"

#define FIRST 3 /* SD_LISTEN_FDS_START */
#define ABOVE 64
static const char *const names[HANDED_COUNT] = { "pins", "app", "node" };

static int handed[HANDED_COUNT] = { -1, -1, -1 }, kept[HANDED_COUNT] = { -1, -1, -1 };
static char program[4096];
static char **arguments;
static const char *config_path;

void upgrade_take(void)
{
	char **list = NULL;
	int n = sd_listen_fds_with_names(1, &list);

	for (int i = 0; i < n; i++) {
		int fd = FIRST + i;

		fcntl(fd, F_SETFD, FD_CLOEXEC);
		fcntl(fd, F_SETFL, O_NONBLOCK);
		for (int k = 0; k < HANDED_COUNT; k++)
			if (!strcmp(list[i], names[k]) && handed[k] < 0)
				handed[k] = TAKE_FD(fd);
		close_fd(&fd); /* of another name */
	}
	for (int i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

int upgrade_handed(enum handed which)
{
	return TAKE_FD(handed[which]);
}

void upgrade_keep(enum handed which, int fd)
{
	kept[which] = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE);
}

/* The one that is installed now, where an update has put another one in its place. */
static int find_program(void)
{
	static const char deleted[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	size_t tail = sizeof(deleted) - 1;

	if (n < 0)
		return -errno;
	program[n] = 0;
	if ((size_t)n > tail && !strcmp(program + n - tail, deleted))
		program[(size_t)n - tail] = 0;
	return 0;
}

/* What is handed on, without gaps: sd_listen_fds(3) takes all of them or none. How many. */
static int list_kept(int list[HANDED_COUNT], char *text, size_t size)
{
	int n = 0;

	*text = 0;
	for (int i = 0; i < HANDED_COUNT; i++) {
		size_t used = strlen(text);

		if (kept[i] < 0)
			continue; /* a node that is alone listens for no other */
		list[n++] = kept[i];
		snprintf(text + used, size - used, "%s%s", used ? ":" : "", names[i]);
	}
	return n;
}

/* FIRST and those behind it may be anybody's: they are put aside until it is known whether the
 * exec has failed. */
static void place(const int list[HANDED_COUNT], int n, int aside[HANDED_COUNT])
{
	for (int i = 0; i < n; i++) {
		aside[i] = fcntl(FIRST + i, F_DUPFD_CLOEXEC, ABOVE);
		dup2(list[i], FIRST + i); /* not close-on-exec */
	}
}

static void put_back(int n, int aside[HANDED_COUNT])
{
	for (int i = 0; i < n; i++) {
		if (aside[i] >= 0)
			dup3(aside[i], FIRST + i, O_CLOEXEC);
		else
			close(FIRST + i);
		close_fd(&aside[i]);
	}
}

static int exec_program(void)
{
	int list[HANDED_COUNT], aside[HANDED_COUNT], r, n;
	char pid[16], count[16], text[64];

	n = list_kept(list, text, sizeof(text));
	snprintf(pid, sizeof(pid), "%d", getpid());
	snprintf(count, sizeof(count), "%d", n);
	if (setenv("LISTEN_PID", pid, 1) || setenv("LISTEN_FDS", count, 1) ||
	    setenv("LISTEN_FDNAMES", text, 1))
		return -errno;
	place(list, n, aside);
	execv(program, arguments);
	r = -errno;
	put_back(n, aside);
	return r;
}

static int check_devices(const char (*devices)[IFNAMSIZ], unsigned int n, char *error, size_t size)
{
	for (unsigned int i = 0; i < n; i++)
		if (!if_nametoindex(devices[i])) {
			snprintf(error, size, "no device %s in this network namespace", devices[i]);
			return -ENODEV;
		}
	return 0;
}

/* What the next agent would not start with, as far as it can be known beforehand: then there would
 * be none. */
static int check_next(struct agent *a, const struct config *next, char *error, size_t size)
{
	const struct config_node *self = next->self;
	bool ours = false, others = false;
	char text[ADDR_TEXT];
	int r = check_devices(self->interfaces, self->n_interfaces, error, size);

	r = r ? r : check_devices(self->tunnel, self->n_tunnel, error, size);
	if (r)
		return r;
	if (self->number != a->dp.control.node) {
		snprintf(error, size,
			 "the node's tables are of number %u, the configuration says %u: "
			 "a number changes with --detach only",
			 a->dp.control.node, self->number);
		return -EINVAL;
	}
	if (next->n_nodes > 1 && !rtnl_address(&a->rtnl, self->address[0], &ours, &others) &&
	    !ours && !others) {
		snprintf(error, size, "no device here has the node's address %s",
			 addr_text(self->address[0], text));
		return -EADDRNOTAVAIL;
	}
	return peers_check(a, next, error, size);
}

static int on_hangup(sd_event_source *s, const struct signalfd_siginfo *si, void *arg)
{
	struct agent *a = arg;
	struct config next = {};
	char error[512];
	int r;

	(void)s, (void)si;
	r = config_load(&next, config_path, a->config.self->name, error, sizeof(error));
	if (!r)
		r = check_next(a, &next, error, sizeof(error));
	config_free(&next);
	if (r) {
		log_error("not upgraded: %s", error);
		return 0;
	}
	if (access(program, X_OK)) {
		log_error("not upgraded: cannot run %s: %s", program, strerror(errno));
		return 0;
	}
	log_info("upgrading: %s takes over", program);
	sd_notify(0, "RELOADING=1");
	moves_stop(a);
	r = exec_program();
	log_error("not upgraded: cannot run %s: %s", program, strerror(-r));
	sd_notify(0, "READY=1");
	return 0;
}

int upgrade_start(struct agent *a, char **argv, const char *config)
{
	int r = find_program();

	arguments = argv;
	config_path = config;
	upgrade_keep(HANDED_PINS, a->dp.lock);
	if (!r)
		r = sd_event_add_signal(a->event, NULL, SIGHUP, on_hangup, a);
	return r < 0 ? r : 0;
}
