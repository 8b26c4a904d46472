// SPDX-License-Identifier: BSD-2-Clause
/*
 * Only sockets of one user share a port by SO_REUSEPORT; fchown before bind gives one to another.
 * Relied on: ctl/guard/holder.c (holder_open: fchown).
 * Kernel: net/ipv4/inet_connection_sock.c, inet_bind_conflict; net/socket.c, sockfs_setattr.
 */
#include <sys/fsuid.h>
#include "reuseport.h"

#define USER 65534

/*
 * What another user's bind is answered beside a holder that was given to this user. The socket's
 * owner counts, not the process's rights: root is refused, too.
 */
static int beside(int family, uid_t holder_of)
{
	struct name at = loopback(family, PORT);
	int holder = socket(family, SOCK_STREAM, 0), fd;

	need(!fchown(holder, holder_of, (gid_t)-1) && !set(holder, SOL_SOCKET, SO_REUSEPORT, 1));
	need(!bind_to(holder, family, PORT) && !listen(holder, 8));
	setfsuid(USER);
	fd = bound(&at, GROUP);
	setfsuid(0);
	close(fd);
	close(holder);
	return fd < 0 ? fd : 0;
}

static void shown(int family)
{
	struct name at = loopback(family, PORT);
	int users;

	rule(beside(family, 0) == -EADDRINUSE, "another user binds beside root's listener");
	rule(!beside(family, USER), "a user does not bind beside a listener that was given to it");
	setfsuid(USER);
	users = listener(family, GROUP);
	setfsuid(0);
	need(users >= 0);
	rule(bound(&at, GROUP) == -EADDRINUSE, "root binds beside another user's listener");
	close(users);
}

int main(void)
{
	return for_each_family(shown);
}
