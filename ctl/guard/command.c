// SPDX-License-Identifier: BSD-2-Clause
/* What `ferry guard` asks: one JSON object each way, on a UNIX socket of root's; see guard.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include "base/log.h"
#include "guard/guard.h"

#define REQUEST 131072 /* all processes of a unit */

static json_t *refusal(const char *id, const char *text)
{
	return json_pack("{s:s,s:s}", "error", id, "text", text);
}

/* Of a request: nothing, or an integer from min to max. */
static bool is_number(const json_t *n, json_int_t min, json_int_t max)
{
	return !n ||
	       (json_is_integer(n) && json_integer_value(n) >= min && json_integer_value(n) <= max);
}

/* Nothing, or an array of them. */
static bool are_numbers(const json_t *numbers, json_int_t min, json_int_t max)
{
	json_t *n;
	size_t i;

	json_array_foreach(numbers, i, n)
		if (!is_number(n, min, max))
			return false;
	return !numbers || json_is_array(numbers);
}

/* What is no number would be taken for 0: any port, nobody's process, a weight that drains. */
static bool is_sound(const json_t *request)
{
	return is_number(json_object_get(request, "pid"), 1, INT32_MAX) &&
	       is_number(json_object_get(request, "port"), 0, 65535) &&
	       is_number(json_object_get(request, "member"), 1, INT32_MAX) &&
	       is_number(json_object_get(request, "generation"), 0, UINT32_MAX) &&
	       is_number(json_object_get(request, "weight"), 0, WEIGHT_MAX) &&
	       are_numbers(json_object_get(request, "pids"), 1, INT32_MAX) &&
	       are_numbers(json_object_get(request, "ports"), 1, 65535);
}

/* Ports of a command that has failed: where nobody has listened, nothing is guarded. */
static json_t *forget(struct daemon *d, pid_t pid, const json_t *ports)
{
	json_t *port;
	size_t i;
	int n = 0;

	json_array_foreach(ports, i, port) {
		struct listener_port at = { .port = (uint32_t)json_integer_value(port) };
		_cleanup_close_ int netns = netns_of(d->netns, pid, &at.netns);
		struct guard *g = netns < 0 ? NULL : guard_find(d, &at);

		if (g && !g->groups && !g->n_strangers) {
			guard_remove(g);
			n++;
		}
	}
	return json_pack("{s:i}", "forgotten", n);
}

/* Ports from a command that is about to start: all of them, or none. */
static json_t *expect(struct daemon *d, pid_t pid, const json_t *ports)
{
	json_t *port, *new = json_array(), *wrong = NULL;
	size_t i;

	json_array_foreach(ports, i, port) {
		struct listener_port at = { .port = (uint32_t)json_integer_value(port) };
		int netns = netns_of(d->netns, pid, &at.netns);
		bool known = netns >= 0 && guard_find(d, &at);

		if (netns < 0)
			wrong = refusal("no-namespace", strerror(-netns));
		else if (!guard_add(d, &at, netns, true))
			wrong = refusal("no-room", "1024 ports are guarded already");
		else if (!known)
			json_array_append(new, port);
		if (wrong) {
			json_decref(forget(d, pid, new));
			json_decref(new);
			return wrong;
		}
	}
	return json_pack("{s:i,s:o}", "guarded", (int)json_array_size(ports), "new", new);
}

struct search {
	struct daemon *d;
	const json_t *ports;
	json_t *guarded, *refused;
	json_t *seen; /* a process and its children may have one listener */
	pid_t pid;
};

static bool is_seen(struct search *s, const struct listener *l)
{
	char cookie[32];

	snprintf(cookie, sizeof(cookie), "%llu", (unsigned long long)l->cookie);
	if (json_object_get(s->seen, cookie))
		return true;
	json_object_set_new(s->seen, cookie, json_true());
	return false;
}

static int on_found(struct listener *l, void *data)
{
	struct search *s = data;
	struct listener_port at = { .netns = l->netns, .port = listener_port_of(l) };
	char text[LISTENER_TEXT], words[WORDS] = "no guard can be made";
	__u64 cookie;
	struct guard *g, *there = guard_find(s->d, &at);
	int netns;

	if (!listener_wanted(l, s->ports) || is_seen(s, l))
		return 0;
	listener_text(l, text);
	netns = netns_of(s->d->netns, s->pid, &cookie);
	g = netns < 0 ? NULL : guard_add(s->d, &at, netns, false);
	if (g && !g->program[0])
		inspect_program(s->pid, g->program);
	if (g && !guard_register(g, l, words)) {
		json_array_append_new(s->guarded, json_pack("{s:s,s:i}", "address", text, "port",
							    (int)at.port));
		g->taken = true;
	} else {
		json_array_append_new(s->refused, json_pack("{s:s,s:i,s:s}", "address", text,
							    "port", (int)at.port, "why", words));
	}
	if (g && !g->groups && !there)
		guard_remove(g);
	return 0;
}

static json_t *take_running(struct daemon *d, const json_t *pids, const json_t *ports)
{
	struct search s = { d, ports, json_array(), json_array(), json_object(), 0 };
	json_t *pid, *answer;
	bool none;
	size_t i;
	int r = -ESRCH;

	json_array_foreach(pids, i, pid) {
		int n;

		s.pid = (pid_t)json_integer_value(pid);
		n = inspect(s.pid, 0, on_found, &s);
		r = n < 0 && r < 0 ? n : 0; /* of a unit's processes one may end meanwhile */
	}
	for (struct guard *g = d->guards; g; g = g->next)
		if (g->taken) {
			g->taken = false;
			guard_meet_siblings(g, true);
		}
	store_state(d);
	none = !json_array_size(s.guarded);
	answer = json_pack("{s:o,s:o}", "guarded", s.guarded, "refused", s.refused);
	json_decref(s.seen);
	if (r < 0) {
		json_object_set_new(answer, "error", json_string("no-process"));
		json_object_set_new(answer, "text", json_string(strerror(-r)));
	} else if (none) {
		const char *why = json_string_value(
			json_object_get(json_array_get(s.refused, 0), "why"));

		json_object_set_new(answer, "error", json_string(why ? "refused" : "no-listener"));
		json_object_set_new(answer, "text",
				    json_string(why ? why : "it listens on no such TCP port"));
	}
	return answer;
}

/* Nobody is there to take what is held. */
static bool would_lose(const struct guard *g)
{
	for (struct group *group = g->groups; group; group = group->next) {
		group_refresh(group);
		if (group_held(group) && !group_members(group))
			return true;
	}
	return false;
}

static json_t *off(struct daemon *d, const json_t *request)
{
	struct listener_port at = {
		.port = (uint32_t)json_integer_value(json_object_get(request, "port"))
	};
	_cleanup_close_ int netns = netns_of(
		d->netns, (pid_t)json_integer_value(json_object_get(request, "pid")), &at.netns);
	bool force = json_is_true(json_object_get(request, "force"));
	struct account before = d->gone, gone;
	int n = 0, handed = 0;

	if (netns < 0)
		return refusal("no-namespace", strerror(-netns));
	for (struct guard *g = d->guards; g; g = g->next)
		if ((!at.port || guard_find(d, &at) == g) && would_lose(g) && !force)
			return refusal("would-lose",
				       "connections are held, and no server is there to take them: "
				       "start it first, or give --force, which resets them");
	for (struct guard *g = d->guards, *next; g; g = next) {
		next = g->next;
		if (at.port && guard_find(d, &at) != g)
			continue;
		for (struct group *group = g->groups; group; group = group->next) {
			group_refresh(group);
			handed += group_members(group) ? (int)group_held(group) : 0;
		}
		guard_remove(g);
		n++;
	}
	if (!n)
		return refusal("not-found", "nothing is guarded there");
	store_state(d);
	gone = account_less(&d->gone, &before);
	return json_pack("{s:i,s:i,s:o}", "off", n, "handed", handed, "ledger",
			 d->watching ? witness_json(&gone) : json_null());
}

/* Of a guard's port, in the network namespace of who asks. */
static json_t *policy(struct daemon *d, const json_t *request,
		      json_t *(*of)(struct guard *g, const json_t *request))
{
	struct listener_port at = {
		.port = (uint32_t)json_integer_value(json_object_get(request, "port"))
	};
	_cleanup_close_ int netns = netns_of(
		d->netns, (pid_t)json_integer_value(json_object_get(request, "pid")), &at.netns);
	struct guard *g = netns < 0 ? NULL : guard_find(d, &at);
	json_t *reply;

	if (netns < 0)
		return refusal("no-namespace", strerror(-netns));
	if (!g)
		return refusal("not-found", "nothing is guarded there");
	reply = of(g, request);
	store_state(d);
	return reply;
}

static json_t *answer(struct daemon *d, const json_t *request)
{
	const char *verb = json_string_value(json_object_get(request, "verb"));
	pid_t pid = (pid_t)json_integer_value(json_object_get(request, "pid"));
	const json_t *ports = json_object_get(request, "ports");

	if (!is_sound(request))
		return refusal("usage", "a number of the request is none, or out of range");
	if (verb && !strcmp(verb, "list"))
		return describe_all(d);
	if (verb && !strcmp(verb, "expect"))
		return expect(d, pid, ports);
	if (verb && !strcmp(verb, "take"))
		return take_running(d, json_object_get(request, "pids"), ports);
	if (verb && !strcmp(verb, "forget"))
		return forget(d, pid, ports);
	if (verb && !strcmp(verb, "off"))
		return off(d, request);
	if (verb && !strcmp(verb, "generation"))
		return policy(d, request, policy_generation);
	if (verb && !strcmp(verb, "policy"))
		return policy(d, request, policy_set);
	return refusal("usage", "no such request");
}

void command_close(struct daemon *d)
{
	static const char *const suffixes[] = { "", KEEPER_SUFFIX };
	char path[256];

	sd_notify(0, "STOPPING=1");
	for (unsigned int i = 0; i < ARRAY_SIZE(suffixes); i++) {
		snprintf(path, sizeof(path), "%s%s", d->socket, suffixes[i]);
		unlink(path);
	}
}

static void finish(struct daemon *d)
{
	char path[256];

	if (d->guards)
		return;
	log_info("nothing is guarded any more");
	arrive_meet(d); /* who is stopped in a listen() that nobody was told of yet goes on */
	command_close(d);
	snprintf(path, sizeof(path), "%s.log", d->socket);
	unlink(path);
	sd_event_exit(d->event, 0);
}

static int on_request(sd_event_source *s, int fd, uint32_t events, void *data)
{
	static char buf[REQUEST];
	_cleanup_free_ char *text = NULL;
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	json_t *request, *reply;

	(void)events;
	if (n <= 0) {
		sd_event_source_disable_unref(s);
		close(fd);
		finish(data);
		return 0;
	}
	request = json_loadb(buf, (size_t)n, 0, NULL);
	reply = request ? answer(data, request) : refusal("usage", "no JSON object");
	text = json_dumps(reply, JSON_COMPACT);
	if (text)
		send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
	json_decref(request);
	json_decref(reply);
	return 0;
}

static int on_connect(sd_event_source *s, int fd, uint32_t events, void *data)
{
	struct daemon *d = data;
	int size = 1 << 20;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)s, (void)events;
	if (c < 0)
		return 0;
	setsockopt(c, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	if (getsockopt(c, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid ||
	    sd_event_add_io(d->event, NULL, c, 1 /* EPOLLIN */, on_request, d) < 0)
		close(c);
	return 0;
}

int command_open(struct daemon *d)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask;
	int r;

	if (strlen(d->socket) + strlen(KEEPER_SUFFIX) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	strcpy(a.sun_path, d->socket);
	if (!connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return -EADDRINUSE;
	unlink(d->socket); /* of an agent that is no more */
	mask = umask(0077);
	r = bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64) ? -errno : 0;
	umask(mask);
	if (r)
		return r;
	d->listener = TAKE_FD(fd);
	return 0;
}

int command_watch(struct daemon *d)
{
	return sd_event_add_io(d->event, NULL, d->listener, 1 /* EPOLLIN */, on_connect, d);
}
