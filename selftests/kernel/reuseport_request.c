// SPDX-License-Identifier: BSD-2-Clause
/*
 * A request moves by the client's next segment, or by the timer that sends its SYN-ACK again.
 * Relied on: bpf/listener.bpf.c (a request is a child, too).
 * Kernel: net/ipv4/tcp_ipv4.c, tcp_v4_rcv: TCP_NEW_SYN_RECV; net/ipv4/inet_connection_sock.c,
 * reqsk_timer_handler.
 */
#include "reuseport.h"

/* Takes segments with SYN only: the last ACK of a handshake does not come. */
static void take_syn_only(int fd)
{
	struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), /* the flags */
				      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x02),
				      BPF_STMT(BPF_RET | BPF_A, 0) };
	struct sock_fprog program = { 3, code };

	need(!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)));
}

static void close_in_handshake(int family, bool migrate, bool client_sends)
{
	int from = listener(family, GROUP), client = socket(family, SOCK_STREAM, 0);
	int array = sockarray(), to;

	take_syn_only(from);
	need(!connect_to(client, family, PORT) && !queued(from)); /* this end has the SYN-ACK */
	to = listener(family, GROUP);
	if (migrate)
		need(!put(array, 0, to) && !attach(from, migrate_to(array, 0)));
	settle();
	close(from);
	rule(!queued(to) && !moved(), "a request moves before something happens");
	if (client_sends)
		need(send(client, "x", 1, 0) == 1);
	need(until(moved() + not_moved() || info(client).tcpi_state == CLOSED));
	settle();
	rule(moved() == migrate && queued(to) == migrate &&
		     (info(client).tcpi_state == ESTABLISHED) == migrate,
	     "%s a program: %d moved, %d wait, the client's state is %d",
	     migrate ? "with" : "without", moved(), queued(to), info(client).tcpi_state);
	close(client);
	close(to);
	close(array);
	new_namespace();
}

static void shown(int family)
{
	close_in_handshake(family, true, true);
	close_in_handshake(family, true, false);
	close_in_handshake(family, false, true);
}

int main(void)
{
	return for_each_family(shown);
}
