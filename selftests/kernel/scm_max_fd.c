// SPDX-License-Identifier: BSD-2-Clause
/*
 * One message carries 253 descriptors; 254 are EINVAL.
 * Relied on: include/ferry/map.h (FERRY_UNIT_SOCKETS), include/ferry/app.h (FERRY_APP_SOCKETS).
 * Kernel: include/net/scm.h, SCM_MAX_FD; net/core/scm.c, scm_fp_copy.
 */
#include <sys/un.h>
#include "rule.h"

#define MOST 253

static int pass(int through, int count)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE((MOST + 1) * sizeof(int))];
	} d = { .h = { CMSG_LEN((size_t)count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec io = { (char[1]){ 0 }, 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &d,
			    .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int)) };

	for (int i = 0; i < count; i++)
		memcpy(CMSG_DATA(&d.h) + (size_t)i * sizeof(int), &through, sizeof(int));
	return sendmsg(through, &m, 0) == 1 ? 0 : -errno;
}

int main(void)
{
	char room[CMSG_SPACE((MOST + 1) * sizeof(int))];
	struct iovec io = { (char[1]){ 0 }, 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	int both[2];

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, both));
	rule(pass(both[0], MOST + 1) == -EINVAL, "a message of 254 descriptors is not EINVAL");
	rule(!pass(both[0], MOST), "a message does not take 253 descriptors");
	need(recvmsg(both[1], &m, 0) == 1);
	rule(!(m.msg_flags & MSG_CTRUNC) && CMSG_FIRSTHDR(&m) &&
		     CMSG_FIRSTHDR(&m)->cmsg_len == CMSG_LEN(MOST * sizeof(int)),
	     "not all 253 descriptors of a message come");
	return 0;
}
