// SPDX-License-Identifier: BSD-2-Clause
/*
 * SK_DROP, and nobody to move to, reset what waits; both are counted as failures, one a connection.
 * Relied on: bpf/listener.bpf.c (what a guard cancels).
 * Kernel: net/core/sock_reuseport.c, reuseport_migrate_sock.
 */
#include "reuseport.h"

static void lost(struct group *g, int verdict, const char *why)
{
	int got, gone;

	need(!attach(g->from, chooser(BPF_SK_REUSEPORT_SELECT_OR_MIGRATE, g->array, 0, verdict)));
	close(g->from);
	got = g->to >= 0 ? served(g->to) : 0;
	gone = reset(&g->c);
	rule(!got && gone == CLIENTS, "%s: %d moved, %d reset, of %d", why, got, gone, CLIENTS);
	rule(!moved() && not_moved() == CLIENTS, "%s: counted as %d moved, %d not", why, moved(),
	     not_moved());
	part(g);
}

static void shown(int family)
{
	struct group g = group(family, 64);

	lost(&g, SK_DROP, "SK_DROP");
	g = group(family, 64);
	close(g.to);
	g.to = -1;
	lost(&g, SK_PASS, "nobody else listens");
}

int main(void)
{
	return for_each_family(shown);
}
