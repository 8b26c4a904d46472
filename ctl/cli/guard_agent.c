// SPDX-License-Identifier: BSD-2-Clause
/* The other end of `ferry guard`: finds ferry-guard or starts it, and asks; see cli.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "cli/cli.h"

#define DEFAULT_SOCKET "/run/ferry/guard.sock"
#define START_MS 10000
#define ANSWER_MS 120000 /* a server of hundreds of addresses is some seconds' work */
#define TRIES 5

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

int cli_not_allowed(struct cli *c)
{
	return cli_error(c, EXIT_FAILED, "not-allowed", "root is needed: run it with sudo");
}

static int dial_or_start(struct cli *c, const char *path, bool start)
{
	int fd = cli_dial(path, 0);

	if (fd >= 0 || !start)
		return fd;
	if (geteuid()) {
		cli_not_allowed(c);
		return -EPERM;
	}
	if (!strcmp(path, DEFAULT_SOCKET))
		mkdir("/run/ferry", 0755);
	spawn(path);
	for (int ms = 0; ms < START_MS && fd < 0; ms += 5) {
		const struct timespec pause = { .tv_nsec = 5000000 };

		nanosleep(&pause, NULL);
		fd = cli_dial(path, 0);
	}
	if (fd < 0)
		cli_error(c, EXIT_FAILED, "no-guard",
			  "ferry-guard does not answer on %s: %s.log may say why", path, path);
	return fd;
}

/* Asks once; CLI_ENDED also where nobody is there. */
static int ask(struct cli *c, json_t *request, bool start, json_t **answer)
{
	_cleanup_close_ int fd = dial_or_start(c, c->socket ? c->socket : DEFAULT_SOCKET, start);

	if (fd >= 0)
		return cli_exchange(c, fd, json_incref(request), ANSWER_MS, answer);
	return fd == -EACCES && !start ? cli_not_allowed(c) : start ? EXIT_FAILED : CLI_ENDED;
}

/* An agent whose last guard was taken off ends; who had dialled it before asks the next one. */
int cli_ask_guard(struct cli *c, json_t *request, bool start, json_t **answer)
{
	int code = CLI_ENDED;
	const char *id;

	for (int i = 0; i < TRIES && code == CLI_ENDED; i++)
		code = ask(c, request, start, answer);
	json_decref(request);
	if (code == CLI_ENDED)
		return start ? cli_error(c, EXIT_FAILED, "no-guard", "ferry-guard ends again and again") :
			       cli_error(c, EXIT_NOT_FOUND, "not-found", "nothing is guarded here");
	if (code)
		return code;
	id = json_string_value(json_object_get(*answer, "error"));
	if (id)
		return cli_error(c, !strcmp(id, "not-found") ? EXIT_NOT_FOUND : EXIT_FAILED, id,
				 "%s", json_string_value(json_object_get(*answer, "text")));
	return EXIT_OK;
}
