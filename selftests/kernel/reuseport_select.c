// SPDX-License-Identifier: BSD-2-Clause
/*
 * bpf_sk_select_reuseport says who gets what moves; an empty slot leaves it to the hash.
 * Relied on: bpf/listener.bpf.c (give; where it fails, the kernel's hash).
 * Kernel: net/core/sock_reuseport.c, reuseport_migrate_sock.
 */
#include "reuseport.h"

static void move_to(int family, int slot, int *first, int *second)
{
	struct group g = group(family, 64);
	int other = listener(family, GROUP);

	need(other >= 0 && !put(g.array, 1, other) && !attach(g.from, migrate_to(g.array, slot)));
	close(g.from);
	rule(moved() == CLIENTS, "of slot %d: %d of %d move", slot, moved(), CLIENTS);
	*first = served(g.to);
	*second = served(other);
	rule(*first + *second == CLIENTS && !reset(&g.c), "of slot %d: some are lost", slot);
	close(other);
	part(&g);
}

static void shown(int family)
{
	int first, second;

	move_to(family, 0, &first, &second);
	rule(first == CLIENTS, "slot 0 was chosen and got %d of %d", first, CLIENTS);
	move_to(family, 1, &first, &second);
	rule(second == CLIENTS, "slot 1 was chosen and got %d of %d", second, CLIENTS);
	move_to(family, 3, &first, &second);
	rule(first && second, "an empty slot was chosen: %d to one, %d to the other", first,
	     second);
}

int main(void)
{
	return for_each_family(shown);
}
