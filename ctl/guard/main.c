// SPDX-License-Identifier: BSD-2-Clause
/* ferry-guard: the agent of all guards of a machine. `ferry guard` starts it; see guard.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include "base/fault.h"
#include "base/log.h"
#include "guard/guard.h"

#define REFRESH_US 200000

static int on_refresh(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	(void)usec;
	arrive_meet(d);
	for (struct guard *g = d->guards; g; g = g->next) {
		for (struct group *group = g->groups; group; group = group->next) {
			group_refresh(group);
			wake_all(group); /* a listener that closes is told of before its queue moves */
		}
		guard_meet_again(g);
	}
	sd_event_source_set_time_relative(s, REFRESH_US);
	return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int start(struct daemon *d)
{
	char words[WORDS] = "";
	int r = store_restore(d);

	if (r < 0) {
		log_error("what an earlier agent has left cannot be read: %s",
			  r == -EPROTO ? "another version of ferry-guard has left it" : strerror(-r));
		return r;
	}
	d->restored = r;
	if (!r) {
		r = command_open(d);
		if (r) {
			log_error("%s: %s", d->socket, strerror(-r));
			return r;
		}
		r = arrive_open(d, words);
		if (!r) {
			d->forgets = wake_is_forgotten();
			witness_start(d);
			r = store_open(d);
		}
		if (r) {
			log_error("cannot start: %s", words);
			return r;
		}
	}
	if (d->forgets)
		log_info("this kernel does not wake who is given a connection: ferry does");
	r = keeper_start(d);
	if (r || !d->config)
		return r;
	/* What is guarded already stays as it is. A mistake is no reason to let go of it. */
	r = config_read(d, d->config);
	if (r && !d->restored)
		command_close(d);
	return d->restored ? 0 : r;
}

static int run(struct daemon *d)
{
	sd_event_source *refresh = NULL;
	int r = start(d);

	if (r < 0)
		return r;
	if ((r = command_watch(d)) < 0 || (r = arrive_watch(d)) < 0 ||
	    (r = sd_event_add_time_relative(d->event, &refresh, CLOCK_MONOTONIC, REFRESH_US, 1000,
					    on_refresh, d)) < 0) {
		log_error("cannot watch: %s", strerror(-r));
		return r;
	}
	witness_watch(d);
	arrive_meet(d);
	for (struct guard *g = d->guards; g; g = g->next)
		if (g->groups)
			guard_refresh(g);
		else
			guard_scan(g);
	sd_notify(0, "READY=1");
	return sd_event_loop(d->event);
}

static int usage(void)
{
	fputs("Usage: ferry-guard --socket PATH [--config FILE]\n\nStarted by `ferry guard`, or by a "
	      "service manager; see ferry(8).\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct daemon d = { .listener = -1, .ports = -1, .unmet = -1, .events = -1,
			    .links = { -1, -1, -1 } };
	struct rlimit files;

	for (int i = 0; i < LEDGER_FD_COUNT; i++)
		d.ledger.fd[i] = -1;
	if (argc > 1 && !strcmp(argv[1], "--keeper"))
		return keeper_main(argc, argv);
	if ((argc != 3 && argc != 5) || strcmp(argv[1], "--socket") ||
	    (argc == 5 && strcmp(argv[3], "--config")))
		return usage();
	log_open("ferry-guard");
	if (fault_init())
		return 2;
	d.socket = argv[2];
	d.config = argc == 5 ? argv[4] : NULL;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	d.netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (d.netns < 0 || sd_event_default(&d.event) < 0)
		return 1;
	return run(&d) < 0;
}
