// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener leaves its sockarray when its last descriptor closes, or when it is shut down.
 * Relied on: ctl/guard/group.c (listen_as: put again; forget: a dead server's slot is empty).
 * Kernel: kernel/bpf/reuseport_array.c, bpf_sk_reuseport_detach.
 */
#include "reuseport.h"

/* The cookie of who is there, 0 for nobody. */
static uint64_t in(int array, uint32_t slot)
{
	uint64_t cookie = 0;

	need(!bpf_map_lookup_elem(array, &slot, &cookie) || errno == ENOENT);
	return cookie;
}

static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	need(!getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size));
	return cookie;
}

static void shown(int family)
{
	int one = listener(family, GROUP), two = listener(family, GROUP), array = sockarray();
	int copy = dup(one);

	need(!put(array, 0, one) && !put(array, 1, two));
	rule(in(array, 0) == cookie_of(one) && in(array, 1) == cookie_of(two) && !in(array, 2),
	     "a sockarray has not what was put in");
	rule(put(array, 2, one) == -EBUSY && !in(array, 2), "a listener is in a second slot");
	close(one);
	rule(in(array, 0), "a listener leaves with one of two descriptors");
	close(copy);
	rule(!in(array, 0) && in(array, 1), "not only a closed listener has left a sockarray");
	need(!shutdown(two, SHUT_RDWR));
	rule(!in(array, 1), "a listener that was shut down is still in a sockarray");
	close(two);
	close(array);
}

int main(void)
{
	return for_each_family(shown);
}
