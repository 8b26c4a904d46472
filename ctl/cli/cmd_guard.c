// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferry guard: asks ferry-guard, which it starts where there is none. A command to be guarded runs
 * below this process, which passes signals and the exit code on and does nothing else.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-login.h>
#include "cli/cli.h"
#include "guard/guard.h"

#define PORTS 64

struct arguments {
	json_t *ports, *pids;
	const char *unit;
	bool dry_run;
	char **command;
};

static int parse_port(struct cli *c, const char *text, struct arguments *a)
{
	json_int_t port;
	int code = cli_port(c, text, &port);

	if (!code && json_array_size(a->ports) == PORTS)
		return cli_error(c, EXIT_USAGE, "usage", "more than %d ports", PORTS);
	if (!code)
		json_array_append_new(a->ports, json_integer(port));
	return code;
}

static int parse_pid(struct cli *c, const char *text, struct arguments *a)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!*text || *end || n < 1 || n > INT32_MAX)
		return cli_error(c, EXIT_USAGE, "usage", "--pid: a process, not '%s'", text);
	json_array_append_new(a->pids, json_integer(n));
	return EXIT_OK;
}

static int parse(struct cli *c, int argc, char **argv, struct arguments *a)
{
	int code = EXIT_OK;

	a->ports = json_array();
	a->pids = json_array();
	for (int i = 0; i < argc && !code; i++) {
		bool more = i + 1 < argc;

		if (!strcmp(argv[i], "--") && more) {
			a->command = argv + i + 1;
			break;
		}
		if (more && !strcmp(argv[i], "--port"))
			code = parse_port(c, argv[++i], a);
		else if (more && !strcmp(argv[i], "--pid"))
			code = parse_pid(c, argv[++i], a);
		else if (more && !strcmp(argv[i], "--unit"))
			a->unit = argv[++i];
		else if (!strcmp(argv[i], "--dry-run"))
			a->dry_run = true;
		else
			code = cli_error(c, EXIT_USAGE, "usage", "'%s' is not understood", argv[i]);
	}
	return code;
}

static void sentence(json_t *rows, const char *format, ...) _printf_(2, 3);
static void sentence(json_t *rows, const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	json_array_append_new(rows, json_string(text));
}

struct would {
	json_t *rows;
	const json_t *ports;
};

static int would_take(struct listener *l, void *data)
{
	struct would *w = data;
	char text[LISTENER_TEXT];

	if (!listener_wanted(l, w->ports))
		return 0;
	listener_text(l, text);
	if (!l->reuse)
		sentence(w->rows, "SO_REUSEPORT on the listener of %s (pid %d) at %s", l->comm,
			 l->pid, text);
	sentence(w->rows, "two holders as uid %u at %s", l->uid, text);
	sentence(w->rows, "program sk_reuseport/migrate 'listener' for the group at %s", text);
	return 0;
}

/* What would be attached to the listeners of these processes. */
static int would_take_all(struct cli *c, const json_t *pids, struct would *w)
{
	json_t *pid;
	size_t i;
	int n = 0;

	json_array_foreach(pids, i, pid) {
		n = inspect((pid_t)json_integer_value(pid), 0, would_take, w);
		if (n == -EACCES || n == -EPERM)
			return cli_not_allowed(c);
		if (n < 0)
			return cli_error(c, EXIT_FAILED, "no-process", "pid %d: %s",
					 (int)json_integer_value(pid), strerror(-n));
	}
	return json_array_size(w->rows) ? EXIT_OK :
					  cli_error(c, EXIT_FAILED, "no-listener",
						    "it listens on no such TCP port");
}

static int dry_run(struct cli *c, const struct arguments *a)
{
	struct would w = { json_array(), a->ports };
	bool running = json_array_size(a->pids);
	json_t *port;
	size_t i;

	if (running) {
		int code = would_take_all(c, a->pids, &w);

		if (code) {
			json_decref(w.rows);
			return code;
		}
	}
	sentence(w.rows, "processes ferry-guard and ferry-keeper");
	sentence(w.rows, "programs cgroup/bind4 and cgroup/bind6 at the root of cgroup2");
	sentence(w.rows, "program tp_btf/inet_sock_set_state 'state'");
	sentence(w.rows, "programs tp_btf/inet_sock_set_state 'state', tp_btf/inet_sk_error_report "
			 "'report' and tp_btf/tcp_destroy_sock 'destroy', which count what is lost");
	if (!running)
		json_array_foreach(a->ports, i, port)
			sentence(w.rows,
				 "from the first listen() on port %lld here on: two holders, as the "
				 "listener's user, and program sk_reuseport/migrate 'listener'",
				 (long long)json_integer_value(port));
	if (!c->json)
		json_array_foreach(w.rows, i, port)
			printf("%s\n", json_string_value(port));
	if (c->json)
		return cli_print(c, json_pack("{s:o}", "would", w.rows), NULL, NULL, 0);
	json_decref(w.rows);
	return EXIT_OK;
}

static pid_t command; /* that is guarded, while it runs */

static void pass_on(int sig)
{
	kill(command, sig);
}

/* What is sent to this process is meant for the command, which a terminal's signals reach by
 * themselves; and what becomes of it becomes of this. It is stopped for an instant when it listens
 * for the first time: nobody else is to take that for his. */
static int wait_for_command(struct cli *c)
{
	static const int passed[] = { SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT };
	struct sigaction pass = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	siginfo_t i = {};

	for (unsigned int n = 0; n < ARRAY_SIZE(passed); n++)
		sigaction(passed[n], &pass, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	while (waitid(P_PID, (id_t)command, &i, WEXITED))
		if (errno != EINTR)
			return cli_error(c, EXIT_FAILED, "lost", "the command: %s", strerror(errno));
	fprintf(stderr, "ferry: the command has ended (%s %d). ",
		i.si_code == CLD_EXITED ? "exit code" : "signal", i.si_status);
	return i.si_code == CLD_EXITED ? i.si_status : 128 + i.si_status;
}

/* Ports that were not guarded before, and where the command, which has failed, has not listened: they
 * are as they were. Whether there was one. */
static bool forget(struct cli *c, const json_t *expected)
{
	json_t *answer = NULL;
	bool some;

	if (cli_ask_guard(c, json_pack("{s:s,s:i,s:O}", "verb", "forget", "pid", (int)getpid(), "ports",
				       json_object_get(expected, "new")),
			  false, &answer))
		return false;
	some = json_integer_value(json_object_get(answer, "forgotten"));
	json_decref(answer);
	return some;
}

static int run_command(struct cli *c, const struct arguments *a)
{
	command = fork();
	if (!command) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* as if it had taken this process's place */
		execvp(a->command[0], a->command);
		fprintf(stderr, "ferry: %s: %s\n", a->command[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	if (command < 0)
		return cli_error(c, EXIT_FAILED, "no-command", "fork: %s", strerror(errno));
	return wait_for_command(c);
}

static int start_command(struct cli *c, const struct arguments *a)
{
	json_t *expected = NULL;
	int code = cli_ask_guard(c, json_pack("{s:s,s:i,s:O}", "verb", "expect", "pid", (int)getpid(),
				    "ports", a->ports),
		       true, &expected);

	if (code)
		return code;
	fprintf(stderr, "ferry: guarded from its first listen() on, also when this command has ended; "
			"'ferry guard off' ends that.\n");
	code = run_command(c, a);
	fputs(code && forget(c, expected) ?
		      "It has not listened: nothing of it is guarded.\n" :
		      "Its port is still guarded: clients wait for whoever listens there next. "
		      "'ferry guard off' ends that.\n",
	      stderr);
	json_decref(expected);
	return code;
}

/* The unit's processes become those of --pid. */
static int find_unit(struct cli *c, struct arguments *a)
{
	char service[256], *unit;
	DIR *d = opendir("/proc");
	struct dirent *e;

	snprintf(service, sizeof(service), "%s.service", a->unit);
	while (d && (e = readdir(d))) {
		pid_t pid = (pid_t)atoi(e->d_name);

		if (pid <= 0 || sd_pid_get_unit(pid, &unit) < 0)
			continue;
		if (!strcmp(unit, a->unit) || !strcmp(unit, service))
			json_array_append_new(a->pids, json_integer(pid));
		free(unit);
	}
	if (d)
		closedir(d);
	if (json_array_size(a->pids))
		return EXIT_OK;
	return cli_error(c, EXIT_NOT_FOUND, "no-unit",
			 "no process is of the unit %s: 'systemctl status %s' says whether it runs",
			 a->unit, a->unit);
}

static int take(struct cli *c, const struct arguments *a)
{
	static const struct column columns[] = { { "address", "ADDRESS" }, { "port", "PORT" } };
	json_t *answer = NULL;
	int code = cli_ask_guard(c, json_pack("{s:s,s:O,s:O}", "verb", "take", "pids", a->pids, "ports",
					      a->ports),
				 true, &answer);

	if (!code)
		return cli_print(c, answer, "guarded", columns, ARRAY_SIZE(columns));
	json_decref(answer);
	return code;
}

int cmd_guard(struct cli *c, int argc, char **argv)
{
	struct arguments a = {};
	int code = parse(c, argc, argv, &a);
	size_t pids = json_array_size(a.pids);

	if (!code && (pids > 1 || !!pids + !!a.unit + !!a.command != 1 ||
		      (a.command && !json_array_size(a.ports))))
		code = cli_error(c, EXIT_USAGE, "usage",
				 "either --pid N or --unit NAME, each with [--port P], or "
				 "--port P -- COMMAND is wanted");
	if (!code && a.unit)
		code = find_unit(c, &a);
	if (!code)
		code = a.dry_run ? dry_run(c, &a) : a.command ? start_command(c, &a) : take(c, &a);
	json_decref(a.ports);
	json_decref(a.pids);
	return code;
}
