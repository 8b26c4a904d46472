// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferry guard: asks ferry-guard, which it starts where there is none. A command to be guarded runs
 * below this process, which passes signals and the exit code on and does nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include "cli/cli.h"
#include "guard/guard.h"

#define DEFAULT_SOCKET "/run/ferry/guard.sock"
#define START_MS 10000
#define ANSWER_MS 20000
#define PORTS 64

struct arguments {
	json_t *ports;
	pid_t pid;
	bool dry_run, force;
	char **command;
};

static int parse_port(struct cli *c, const char *text, struct arguments *a)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!*text || *end || n < 1 || n > 65535)
		return cli_error(c, EXIT_USAGE, "usage", "--port: 1 to 65535, not '%s'", text);
	if (json_array_size(a->ports) == PORTS)
		return cli_error(c, EXIT_USAGE, "usage", "more than %d ports", PORTS);
	json_array_append_new(a->ports, json_integer(n));
	return EXIT_OK;
}

static int parse_pid(struct cli *c, const char *text, struct arguments *a)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!*text || *end || n < 1 || n > INT32_MAX)
		return cli_error(c, EXIT_USAGE, "usage", "--pid: a process, not '%s'", text);
	a->pid = (pid_t)n;
	return EXIT_OK;
}

static int parse(struct cli *c, int argc, char **argv, struct arguments *a)
{
	int code = EXIT_OK;

	a->ports = json_array();
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
		else if (!strcmp(argv[i], "--dry-run"))
			a->dry_run = true;
		else if (!strcmp(argv[i], "--force"))
			a->force = true;
		else
			code = cli_error(c, EXIT_USAGE, "usage", "'%s' is not understood", argv[i]);
	}
	return code;
}

static int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	strcpy(a.sun_path, path);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return -errno;
	return TAKE_FD(fd);
}

/* The agent, beside this program or in the path, in the background and of nobody's terminal. */
static void spawn(const char *socket)
{
	pid_t pid = fork();
	char path[4096];
	ssize_t n;
	int null, log;

	if (pid) {
		waitpid(pid, NULL, 0);
		return;
	}
	setsid();
	if (fork())
		_exit(0); /* the agent is nobody's child: the command that comes here has none */
	snprintf(path, sizeof(path), "%s.log", socket);
	null = open("/dev/null", O_RDWR);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	dup2(null, 0);
	dup2(null, 1);
	dup2(log < 0 ? null : log, 2);
	if (close_range(3, ~0U, 0) || chdir("/"))
		_exit(127);
	n = readlink("/proc/self/exe", path, sizeof(path) - 16);
	if (n > 0) {
		path[n] = 0;
		strcpy(strrchr(path, '/'), "/ferry-guard");
		execl(path, "ferry-guard", "--socket", socket, NULL);
		strcpy(strrchr(path, '/'), "/../sbin/ferry-guard");
		execl(path, "ferry-guard", "--socket", socket, NULL);
	}
	execlp("ferry-guard", "ferry-guard", "--socket", socket, NULL);
	_exit(127);
}

static int not_allowed(struct cli *c)
{
	return cli_error(c, EXIT_FAILED, "not-allowed", "root is needed: run it with sudo");
}

static int dial_or_start(struct cli *c, const char *path, bool start)
{
	int fd = dial(path);

	if (fd >= 0 || !start)
		return fd;
	if (geteuid()) {
		not_allowed(c);
		return -EPERM;
	}
	if (!strcmp(path, DEFAULT_SOCKET))
		mkdir("/run/ferry", 0755);
	spawn(path);
	for (int ms = 0; ms < START_MS && fd < 0; ms += 5) {
		const struct timespec pause = { .tv_nsec = 5000000 };

		nanosleep(&pause, NULL);
		fd = dial(path);
	}
	if (fd < 0)
		cli_error(c, EXIT_FAILED, "no-guard",
			  "ferry-guard does not answer on %s: %s.log may say why", path, path);
	return fd;
}

/* *answer is the reply. EXIT_OK, or says why not. */
static int ask(struct cli *c, json_t *request, bool start, json_t **answer)
{
	const char *path = c->socket ? c->socket : DEFAULT_SOCKET;
	_cleanup_close_ int fd = dial_or_start(c, path, start);
	_cleanup_free_ char *text = json_dumps(request, JSON_COMPACT), *buf = malloc(1 << 20);
	struct pollfd p = { fd, POLLIN, 0 };
	const char *id;
	ssize_t n;

	json_decref(request);
	if (fd == -EACCES && !start)
		return not_allowed(c);
	if (fd < 0)
		return start ? EXIT_FAILED :
			       cli_error(c, EXIT_NOT_FOUND, "not-found", "nothing is guarded here");
	if (!text || !buf || send(fd, text, strlen(text), MSG_NOSIGNAL) < 0 ||
	    poll(&p, 1, ANSWER_MS) != 1 || (n = recv(fd, buf, 1 << 20, 0)) <= 0)
		return cli_error(c, EXIT_FAILED, "no-answer", "ferry-guard does not answer");
	*answer = json_loadb(buf, (size_t)n, 0, NULL);
	id = json_string_value(json_object_get(*answer, "error"));
	if (id)
		return cli_error(c, !strcmp(id, "not-found") ? EXIT_NOT_FOUND : EXIT_FAILED, id,
				 "%s", json_string_value(json_object_get(*answer, "text")));
	return EXIT_OK;
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
	uint16_t port;
	uint8_t a[16];
	bool wanted = !json_array_size(w->ports);
	json_t *p;
	size_t i;

	addr_from_sockaddr(&l->addr, a, &port);
	json_array_foreach(w->ports, i, p)
		wanted = wanted || json_integer_value(p) == ntohs(port);
	if (!wanted)
		return 0;
	listener_text(l, text);
	if (!l->reuse)
		sentence(w->rows, "SO_REUSEPORT on the listener of %s (pid %d) at %s", l->comm,
			 l->pid, text);
	sentence(w->rows, "two holders as uid %u at %s", l->uid, text);
	sentence(w->rows, "program sk_reuseport/migrate 'listener' for the group at %s", text);
	return 0;
}

static int dry_run(struct cli *c, const struct arguments *a)
{
	struct would w = { json_array(), a->ports };
	json_t *port;
	size_t i;

	if (a->pid) {
		int n = inspect(a->pid, 0, would_take, &w);

		if (n < 0 || !json_array_size(w.rows)) {
			json_decref(w.rows);
			if (n == -EACCES || n == -EPERM)
				return not_allowed(c);
			return cli_error(c, EXIT_FAILED, n < 0 ? "no-process" : "no-listener",
					 "pid %d: %s", a->pid,
					 n < 0 ? strerror(-n) : "it listens on no such TCP port");
		}
	}
	sentence(w.rows, "processes ferry-guard and ferry-keeper");
	sentence(w.rows, "programs cgroup/bind4 and cgroup/bind6 at the root of cgroup2");
	sentence(w.rows, "program tp_btf/inet_sock_set_state 'state'");
	if (!a->pid)
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
	fprintf(stderr, "ferry: the command has ended (%s %d). Its port is still guarded: clients wait "
			"for whoever listens there next. 'ferry guard off' ends that.\n",
		i.si_code == CLD_EXITED ? "exit code" : "signal", i.si_status);
	return i.si_code == CLD_EXITED ? i.si_status : 128 + i.si_status;
}

static int start_command(struct cli *c, const struct arguments *a)
{
	json_t *answer = NULL;
	int code = ask(c, json_pack("{s:s,s:i,s:O}", "verb", "expect", "pid", (int)getpid(),
				    "ports", a->ports),
		       true, &answer);

	json_decref(answer);
	if (code)
		return code;
	fprintf(stderr, "ferry: guarded from its first listen() on, also when this command has ended; "
			"'ferry guard off' ends that.\n");
	command = fork();
	if (!command) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* as if it had taken this process's place */
		execvp(a->command[0], a->command);
		fprintf(stderr, "ferry: %s: %s\n", a->command[0], strerror(errno));
		_exit(127);
	}
	if (command < 0)
		return cli_error(c, EXIT_FAILED, "no-command", "fork: %s", strerror(errno));
	return wait_for_command(c);
}

int cmd_guard(struct cli *c, int argc, char **argv)
{
	struct arguments a = {};
	json_t *answer = NULL;
	int code = parse(c, argc, argv, &a);

	if (!code && (!a.pid == !a.command || (a.command && !json_array_size(a.ports)) || a.force))
		code = cli_error(c, EXIT_USAGE, "usage",
				 "either --pid N [--port P], or --port P -- COMMAND is wanted");
	if (!code && a.dry_run)
		code = dry_run(c, &a);
	else if (!code && a.command)
		code = start_command(c, &a);
	else if (!code)
		code = ask(c, json_pack("{s:s,s:i,s:O}", "verb", "take", "pid", (int)a.pid, "ports",
					a.ports),
			   true, &answer);
	json_decref(a.ports);
	if (answer && !code)
		return cli_print(c, answer, "guarded",
				 (struct column[]){ { "address", "ADDRESS" }, { "port", "PORT" } }, 2);
	json_decref(answer);
	return code;
}

static void show(const json_t *guard)
{
	json_t *row;
	size_t i;
	const char *address = json_string_value(json_object_get(guard, "address"));

	printf("%s %s, port %lld: %lld held\n", json_string_value(json_object_get(guard, "state")),
	       *address ? address : "(nobody has listened yet)",
	       (long long)json_integer_value(json_object_get(guard, "port")),
	       (long long)json_integer_value(json_object_get(guard, "held")));
	json_array_foreach(json_object_get(guard, "members"), i, row)
		printf("  %s (pid %lld), generation %lld: %lld queued of %lld\n",
		       json_string_value(json_object_get(row, "comm")),
		       (long long)json_integer_value(json_object_get(row, "pid")),
		       (long long)json_integer_value(json_object_get(row, "generation")),
		       (long long)json_integer_value(json_object_get(row, "queued")),
		       (long long)json_integer_value(json_object_get(row, "backlog")));
	json_array_foreach(json_object_get(guard, "strangers"), i, row)
		printf("  %s (pid %lld) on %s is given nothing: %s\n",
		       json_string_value(json_object_get(row, "comm")),
		       (long long)json_integer_value(json_object_get(row, "pid")),
		       json_string_value(json_object_get(row, "address")),
		       json_string_value(json_object_get(row, "why")));
}

int cmd_guard_list(struct cli *c, int argc, char **argv)
{
	json_t *answer = NULL, *guard;
	size_t i;
	int code;

	(void)argv;
	if (argc)
		return cli_error(c, EXIT_USAGE, "usage", "no argument is wanted");
	code = ask(c, json_pack("{s:s}", "verb", "list"), false, &answer);
	if (!code && c->json)
		return cli_print(c, answer, NULL, NULL, 0);
	if (!code)
		json_array_foreach(json_object_get(answer, "guards"), i, guard)
			show(guard);
	json_decref(answer);
	return code;
}

int cmd_guard_off(struct cli *c, int argc, char **argv)
{
	struct arguments a = {};
	json_t *answer = NULL;
	int code = parse(c, argc, argv, &a);

	if (!code && (a.pid || a.command || a.dry_run || json_array_size(a.ports) > 1))
		code = cli_error(c, EXIT_USAGE, "usage", "[--port P] [--force] is wanted");
	if (!code)
		code = ask(c, json_pack("{s:s,s:i,s:I,s:b}", "verb", "off", "pid", (int)getpid(),
					"port", json_integer_value(json_array_get(a.ports, 0)),
					"force", a.force),
			   false, &answer);
	json_decref(a.ports);
	if (!code)
		return cli_print(c, answer, NULL, NULL, 0);
	json_decref(answer);
	return code;
}
