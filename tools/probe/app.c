// SPDX-License-Identifier: BSD-2-Clause
/*
 * An application of libferry without its protocol: options, listeners, agent, main loop. The
 * life of its units is in app_unit.c; app.h is the contract.
 *
 * Does not restart what is broken; the connection to the agent is the library's to restore.
 *
 * Invariant: stdout gets whole JSON lines only; words for people go to stderr.
 */
#define _GNU_SOURCE 1 /* accept4 */
#include "app.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "app_unit.h"

void app_event(const char *name, const char *fields, ...)
{
	va_list args;

	printf("{\"event\":\"%s\"%s", name, *fields ? "," : "");
	va_start(args, fields);
	vprintf(fields, args);
	va_end(args);
	puts("}");
}

uint64_t random_id(void)
{
	uint64_t id = 0;

	while (!id) {
		if (getrandom(&id, sizeof(id), 0) != sizeof(id))
			id = now_ns();
		id &= (1ULL << 52) - 1;
	}
	return id;
}

void app_init(struct app *a, const struct app_ops *ops, const char *kind)
{
	memset(a, 0, sizeof(*a));
	a->ops = ops;
	a->kind = kind;
	a->agent_source.fd = a->signals.fd = -1;
	a->units.next = a->units.prev = &a->units;
}

int app_option(struct app *a, int option, const char *value)
{
	uint64_t port;

	switch (option) {
	case APP_LISTEN:
		if (a->n_listeners == APP_LISTEN_MAX)
			return -EINVAL;
		a->listeners[a->n_listeners++].address = value;
		return 0;
	case APP_PORT:
		if (number_parse(&port, value, UINT16_MAX))
			return -EINVAL;
		a->port = (uint16_t)port;
		return 0;
	case APP_AGENT:
		a->agent = value;
		return 0;
	case APP_NO_AGENT:
		a->no_agent = 1;
		return 0;
	case APP_KIND:
		a->kind = value;
		return 0;
	case APP_PACING:
		return number_parse(&a->pacing, value, UINT32_MAX);
	case APP_SNDBUF:
		return number_parse(&a->sndbuf, value, INT32_MAX);
	case APP_STATE_SIZE:
		return number_parse(&a->state_size, value, FERRY_STATE_MAX);
	}
	return -EINVAL;
}

void app_pace(const struct app *a, int fd)
{
	if (a->pacing)
		set_int(fd, SOL_SOCKET, SO_MAX_PACING_RATE, (int)(uint32_t)a->pacing);
}

static void listener_ready(struct source *s, uint32_t events)
{
	struct app_listener *l = container_of(s, struct app_listener, source);
	struct app *a = l->app;
	union address from;
	socklen_t size = sizeof(from);
	int fd = accept4(s->fd, &from.sa, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd < 0)
		return;
	app_pace(a, fd);
	if (a->sndbuf)
		set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)a->sndbuf);
	a->ops->accepted(a, fd, &from);
}

static int listen_all(struct app *a)
{
	for (unsigned int i = 0; i < a->n_listeners; i++) {
		struct app_listener *l = &a->listeners[i];
		union address address;
		socklen_t size = sizeof(address);
		char text[ADDRESS_TEXT];
		int fd = address_parse(&address, l->address, a->port);

		if (!fd)
			fd = tcp_listen(&address);
		if (fd < 0) {
			fprintf(stderr, "cannot listen on %s port %u: %s\n", l->address, a->port,
				strerror(-fd));
			return fd;
		}
		l->app = a;
		l->source = (struct source){ .fd = fd, .ready = listener_ready };
		loop_watch(a->loop, &l->source, EPOLLIN);
		getsockname(fd, &address.sa, &size);
		app_event("listening", "\"address\":\"%s\",\"kind\":\"%s\"",
			  address_text(&address, text), a->kind);
	}
	return 0;
}

void app_connected(int error, void *arg)
{
	struct app *a = arg;

	if (error) {
		app_event("agent-lost", "\"error\":\"%s\"", strerror(-error));
		return;
	}
	app_event("registered", "\"kind\":\"%s\"", a->kind);
	for (struct unit *u = a->units.next; u != &a->units; u = u->next)
		if (!u->dead)
			a->ops->offer(a, u); /* what was refused; the library has the rest */
}

static void agent_ready(struct source *s, uint32_t events)
{
	struct app *a = container_of(s, struct app, agent_source);

	(void)events;
	ferry_dispatch(a->ferry);
}

static int agent_connect(struct app *a)
{
	int err = ferry_open(&a->ferry, a->agent, a->kind, &app_ferry_ops, a);

	if (err)
		return err;
	a->agent_source = (struct source){ .fd = ferry_fd(a->ferry), .ready = agent_ready };
	app_connected(0, a);
	return loop_watch(a->loop, &a->agent_source, EPOLLIN);
}

static void signal_ready(struct source *s, uint32_t events)
{
	struct app *a = container_of(s, struct app, signals);

	(void)events;
	a->quit = 1;
}

static int catch_signals(struct app *a)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	a->signals.ready = signal_ready;
	a->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return a->signals.fd < 0 ? -errno : loop_watch(a->loop, &a->signals, EPOLLIN);
}

static void serve(struct app *a)
{
	while (!a->quit && !a->failed) {
		uint64_t now = now_ns(), until = a->ops->tick ? a->ops->tick(a, now) : NEVER;

		app_units_reap(a);
		if (loop_wait(a->loop, until))
			return;
	}
}

int app_run(struct app *a)
{
	int err;

	setvbuf(stdout, NULL, _IOLBF, 0);
	raise_file_limit();
	a->loop = loop_open();
	if (a->loop < 0 || catch_signals(a) || listen_all(a))
		return EXIT_FAILURE;
	if (!a->no_agent) {
		err = agent_connect(a);
		if (err) {
			fprintf(stderr, "cannot register with the agent: %s\n", strerror(-err));
			return EXIT_FAILURE;
		}
	}
	serve(a);
	return a->quit && !a->failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
