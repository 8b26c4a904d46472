// SPDX-License-Identifier: BSD-2-Clause
/* See account.h. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "listener/account.h"

const char *const account_ways[] = { "closed", "shut_down", "destroyed" };
const char *const account_counts[] = {
#define X(id, name, text) name,
	WITNESS_COUNTS(X)
#undef X
};

uint64_t account_lost(const __u64 n[WITNESS_COUNT])
{
	return n[WITNESS_RESET] + n[WITNESS_HALF_CLOSED] + n[WITNESS_GONE];
}

struct account account_of(const __u64 n[WITNESS_COUNT], const uint64_t counts[LISTENER_COUNT])
{
	uint64_t ended = account_lost(n);
	struct account a = { .queued = n[WITNESS_QUEUED], .lost = ended };

	if (!counts) {
		a.unexplained = (int64_t)(a.queued - ended);
		return a;
	}
	a.migrated_alive = counts[LISTENER_ALIVE];
	a.migrated_dead = counts[LISTENER_DEAD];
	a.held = counts[LISTENER_HELD];
	a.cancelled = counts[LISTENER_CANCELLED];
	/* more cancelled than ended: the two were not read at one moment */
	a.lost = ended > a.cancelled ? ended - a.cancelled : 0;
	a.unexplained = (int64_t)(a.queued - a.migrated_alive - a.migrated_dead - a.held -
				  a.cancelled - a.lost);
	return a;
}

/* a + sign * b */
static struct account sum(const struct account *a, const struct account *b, int sign)
{
	uint64_t by = (uint64_t)sign;

	return (struct account){
		.queued = a->queued + by * b->queued,
		.migrated_alive = a->migrated_alive + by * b->migrated_alive,
		.migrated_dead = a->migrated_dead + by * b->migrated_dead,
		.held = a->held + by * b->held,
		.cancelled = a->cancelled + by * b->cancelled,
		.lost = a->lost + by * b->lost,
		.unexplained = a->unexplained + sign * b->unexplained,
	};
}

void account_add(struct account *to, const struct account *a)
{
	*to = sum(to, a, 1);
}

struct account account_less(const struct account *a, const struct account *b)
{
	return sum(a, b, -1);
}

void account_comm(const char comm[WITNESS_COMM], char text[WITNESS_COMM + 1])
{
	size_t i;

	for (i = 0; i < WITNESS_COMM && comm[i]; i++)
		text[i] = (char)(comm[i] >= ' ' && comm[i] <= '~' ? comm[i] : '?');
	text[i] = 0;
}

/* Appends; what has no room is cut. */
static _printf_(2, 3) void put(char text[ACCOUNT_SENTENCE], const char *format, ...)
{
	size_t n = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + n, ACCOUNT_SENTENCE - n, format, args);
	va_end(args);
}

static const char *address(const uint8_t addr[16], uint16_t port, char text[ACCOUNT_ADDRESS])
{
	bool v4 = addr_is_v4(addr);
	char bare[ADDR_TEXT];

	snprintf(text, ACCOUNT_ADDRESS, "%s%s%s:%u", v4 ? "" : "[", addr_text(addr, bare),
		 v4 ? "" : "]", port);
	return text;
}

const char *account_address(const struct witness_key *key, uint64_t netns,
			    char text[ACCOUNT_ADDRESS])
{
	size_t n;

	address(key->addr, key->port, text);
	n = strlen(text);
	if (key->netns != netns)
		snprintf(text + n, ACCOUNT_ADDRESS - n, " in network namespace %" PRIu64,
			 (uint64_t)key->netns);
	return text;
}

/* "37 clients reset, 3 given to another listener" */
static void put_fates(char text[ACCOUNT_SENTENCE], const __u64 n[WITNESS_COUNT])
{
	static const struct {
		enum witness_count count;
		const char *one, *many;
	} fates[] = {
		{ WITNESS_RESET, "client reset", "clients reset" },
		{ WITNESS_HALF_CLOSED, "reset that had closed its side",
		  "reset that had closed their side" },
		{ WITNESS_GONE, "ended whose client had gone before",
		  "ended whose clients had gone before" },
		{ WITNESS_MIGRATED, "given to another listener", "given to another listener" },
	};
	const char *comma = "";

	for (size_t i = 0; i < ARRAY_SIZE(fates); i++) {
		uint64_t value = n[fates[i].count];

		if (!value)
			continue;
		put(text, "%s%" PRIu64 " %s", comma, value,
		    value == 1 ? fates[i].one : fates[i].many);
		comma = ", ";
	}
	if (!n[WITNESS_QUEUED])
		put(text, "nobody was queued");
	if (n[WITNESS_HALF_OPEN])
		put(text, "; %" PRIu64 " handshake%s under way, whose end is not seen",
		    (uint64_t)n[WITNESS_HALF_OPEN], n[WITNESS_HALF_OPEN] == 1 ? " was" : "s were");
}

const char *account_sentence(const struct witness_close *c, uint64_t netns,
			     char text[ACCOUNT_SENTENCE])
{
	static const char *const did[] = { "closed", "shut down", "destroyed" };
	char comm[WITNESS_COMM + 1], where[ACCOUNT_ADDRESS];

	account_comm(c->comm, comm);
	text[0] = 0;
	put(text, "%s (pid %u) %s %s: ", comm, c->pid,
	    c->way < ARRAY_SIZE(did) ? did[c->way] : "ended",
	    account_address(&c->key, netns, where));
	put_fates(text, c->n);
	return text;
}

const char *account_sum(const __u64 n[WITNESS_COUNT], char text[ACCOUNT_SENTENCE])
{
	text[0] = 0;
	put(text, "%" PRIu64 " close%s with %" PRIu64 " queued: ", (uint64_t)n[WITNESS_CLOSES],
	    n[WITNESS_CLOSES] == 1 ? "" : "s", (uint64_t)n[WITNESS_QUEUED]);
	put_fates(text, n);
	return text;
}

const char *account_client(const struct witness_client *w, uint64_t netns,
			   char text[ACCOUNT_SENTENCE])
{
	char from[ACCOUNT_ADDRESS], where[ACCOUNT_ADDRESS];

	text[0] = 0;
	put(text, "client %s of %s %s", address(w->remote, w->remote_port, from),
	    account_address(&w->key, netns, where),
	    w->count == WITNESS_RESET ? "was reset" : "was reset after it had closed its side");
	return text;
}
