// SPDX-License-Identifier: BSD-2-Clause
/* Which node, its pins, its agent; errors and output. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "cli/cli.h"

#define SCHEMA 1 /* of every object's keys */
#define ANSWER_MAX (1 << 20) /* 253 sockets, a reason each; a thousand guarded ports */
#define PATH_SIZE 128

static void print_json(json_t *object)
{
	json_object_set_new(object, "schema", json_integer(SCHEMA));
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(object);
}

int cli_error(struct cli *c, int code, const char *id, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (c->quiet)
		return code;
	if (c->json) {
		print_json(json_pack("{s:s, s:s}", "error", id, "text", text));
	} else {
		fprintf(stderr, "ferry: %s: %s\n", id, text);
	}
	return code;
}

/* The only node that is pinned on this machine, or *n of them, or *n is -errno. */
static const char *only_node(int *n)
{
	static char name[64];
	DIR *dir = opendir(PIN_ROOT);

	*n = dir || errno == ENOENT ? 0 : -errno;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%.63s", e->d_name);
		++*n;
	}
	if (dir)
		closedir(dir);
	return *n == 1 ? name : NULL;
}

static int choose_node(struct cli *c)
{
	int n = 0;

	if (!c->node)
		c->node = getenv("FERRY_NODE");
	if (!c->node)
		c->node = only_node(&n);
	if (c->node)
		return EXIT_OK;
	if (n < 0)
		return cli_error(c, EXIT_USAGE, "no-node", "cannot read " PIN_ROOT ": %s; be root",
				 strerror(-n));
	return cli_error(c, EXIT_USAGE, "no-node",
			 n ? "several nodes are set up under " PIN_ROOT ": name one with --node" :
			     "no node is set up under " PIN_ROOT " (which ip netns exec hides: use "
			     "nsenter --net)");
}

int cli_view(struct cli *c)
{
	int r = choose_node(c);

	if (r)
		return r;
	r = dataplane_view(&c->view, c->node);
	c->pins = true;
	return r ? cli_error(c, r == -ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED, "no-pins", "%s",
			     dataplane_error()) :
		   EXIT_OK;
}

int cli_dial(const char *path, int flags)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;

	if (strlen(path) >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	strcpy(un.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&un, sizeof(un)))
		return -errno;
	return TAKE_FD(fd);
}

static const char *agent_path(const struct cli *c, char path[PATH_SIZE])
{
	if (c->socket)
		snprintf(path, PATH_SIZE, "%s", c->socket);
	else
		snprintf(path, PATH_SIZE, "/run/ferry/%s.sock", c->node);
	return path;
}

static int connect_agent(struct cli *c)
{
	char path[PATH_SIZE];
	int fd = cli_dial(agent_path(c, path), 0);

	if (fd >= 0)
		return fd;
	return -cli_error(c, EXIT_FAILED, "no-agent", "%s: %s; %s%s", path, strerror(-fd),
			  fd == -EACCES ? "be root, or in the group ferry" :
					  "is ferryd running? ferryd --node ",
			  fd == -EACCES ? "" : c->node);
}

/* Whether there is an agent, without asking it anything: its pid, 0 none, null not known. */
static json_t *agent_pid(const struct cli *c)
{
	char path[PATH_SIZE];
	_cleanup_close_ int fd = cli_dial(agent_path(c, path), SOCK_NONBLOCK);
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return json_integer(0);
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return json_null();
	return json_integer(peer.pid);
}

int cli_port(struct cli *c, const char *text, json_int_t *port)
{
	char *end;

	*port = strtol(text, &end, 10);
	if (!*text || *end || *port < 1 || *port > 65535)
		return cli_error(c, EXIT_USAGE, "usage", "--port: 1 to 65535, not '%s'", text);
	return EXIT_OK;
}

const char *cli_when(uint64_t boottime, char text[CLI_WHEN])
{
	time_t at = time(NULL) - (time_t)((boottime_ns() - boottime) / SEC_NS);
	struct tm tm;

	strftime(text, CLI_WHEN, "%Y-%m-%d %H:%M:%S", localtime_r(&at, &tm));
	return text;
}

int cli_exchange(struct cli *c, int fd, json_t *request, int timeout_ms, json_t **answer)
{
	static char buf[ANSWER_MAX];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	_cleanup_free_ char *text = json_dumps(request, JSON_COMPACT);
	ssize_t n = -1;

	json_decref(request);
	if (text && send(fd, text, strlen(text), MSG_NOSIGNAL) > 0 && poll(&p, 1, timeout_ms) == 1)
		n = recv(fd, buf, sizeof(buf), 0);
	*answer = n > 0 ? json_loadb(buf, (size_t)n, 0, NULL) : NULL;
	if (!n)
		return CLI_ENDED;
	return *answer ? EXIT_OK :
			 cli_error(c, EXIT_FAILED, "timeout", "the agent did not answer");
}

int cli_ask(struct cli *c, json_t *request, int timeout_ms, json_t **answer)
{
	_cleanup_close_ int fd = -1;
	int r = choose_node(c);

	if (!r) {
		fd = connect_agent(c);
		r = fd < 0 ? -fd : EXIT_OK;
	}
	if (r)
		json_decref(request);
	else
		r = cli_exchange(c, fd, request, timeout_ms, answer);
	return r == CLI_ENDED ? cli_error(c, EXIT_FAILED, "timeout", "the agent has ended") : r;
}

static const char *cell(json_t *value, char *buf, size_t size)
{
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_integer(value))
		snprintf(buf, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(buf, size, "%.1f", json_real_value(value));
	else if (json_is_boolean(value))
		snprintf(buf, size, "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(buf, size, "-");
	return buf;
}

static void print_table(json_t *rows, const struct column *columns, unsigned int n)
{
	size_t width[16] = {}, i;
	char buf[64];
	json_t *row;

	for (unsigned int k = 0; k < n; k++) {
		width[k] = strlen(columns[k].title);
		json_array_foreach(rows, i, row) {
			size_t w = strlen(cell(json_object_get(row, columns[k].key), buf,
					       sizeof(buf)));

			if (w > width[k])
				width[k] = w;
		}
	}
	for (unsigned int k = 0; k < n; k++)
		printf("%-*s%s", k + 1 < n ? (int)width[k] : 0, columns[k].title,
		       k + 1 < n ? "  " : "\n");
	json_array_foreach(rows, i, row)
		for (unsigned int k = 0; k < n; k++)
			printf("%-*s%s", k + 1 < n ? (int)width[k] : 0,
			       cell(json_object_get(row, columns[k].key), buf, sizeof(buf)),
			       k + 1 < n ? "  " : "\n");
}

/* "name: value"; what is nested is "name member: value". */
static void print_members(json_t *object, const char *prefix)
{
	const char *name;
	char buf[64];
	json_t *value;

	json_object_foreach(object, name, value) {
		if (json_is_object(value)) {
			snprintf(buf, sizeof(buf), "%s ", name);
			print_members(value, buf);
		} else if (!json_is_array(value)) {
			printf("%s%s: %s\n", prefix, name, cell(value, buf, sizeof(buf)));
		}
	}
}

int cli_print(struct cli *c, json_t *object, const char *key, const struct column *columns,
	      unsigned int n)
{
	json_t *agent = c->pins && !json_object_get(object, "agent") ? agent_pid(c) : NULL;

	if (c->json) {
		if (agent)
			json_object_set_new(object, "agent", agent);
		print_json(object);
		return EXIT_OK;
	}
	if (json_is_integer(agent) && !json_integer_value(agent))
		fprintf(stderr, "ferry: no agent answers: this is read from what is pinned\n");
	json_decref(agent);
	print_members(object, "");
	if (key)
		print_table(json_object_get(object, key), columns, n);
	json_decref(object);
	return EXIT_OK;
}
