// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener's backlog does not bound what moves to it, only what connects to it.
 * Relied on: bpf/listener.bpf.c (weight: who has no room is not chosen).
 * Kernel: net/ipv4/inet_connection_sock.c, inet_csk_reqsk_queue_add asks nothing;
 * net/ipv4/tcp_input.c, tcp_conn_request: sk_acceptq_is_full.
 */
#include "reuseport.h"

/* As long as more wait than its backlog is, SYNs are dropped and counted. */
static void shown(int family)
{
	struct group g = group(family, 1);
	int more = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), before;

	need(!attach(g.from, migrate_to(g.array, 0)));
	close(g.from);
	rule(queued(g.to) == CLIENTS && info(g.to).tcpi_sacked == 1,
	     "%d of %d wait in a queue of 1", queued(g.to), CLIENTS);
	before = counter("ListenOverflows");
	need(connect_to(more, family, PORT) == -EINPROGRESS);
	settle();
	rule(counter("ListenOverflows") == before + 1 && queued(g.to) == CLIENTS,
	     "a queue that is over its backlog takes a SYN");
	rule(served(g.to) == CLIENTS && !reset(&g.c), "not all that moved are served");
	rule(until(queued(g.to) == 1), "a queue that is empty again takes no SYN");
	close(more);
	part(&g);
}

int main(void)
{
	return for_each_family(shown);
}
