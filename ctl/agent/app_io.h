/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to the UNIX socket: what app_io.c keeps and app.c acts on. */
#ifndef AGENT_APP_IO_H
#define AGENT_APP_IO_H

#include <sys/socket.h>
#include "agent/app.h"

struct app_message;

struct app {
	struct app *next;
	struct agent *agent;
	sd_event_source *source;
	int fd;
	struct ucred peer;
	char kind[32];           /* "": has not said HELLO */
	struct space *space;     /* of its sockets; NULL before HELLO */
	int bundle;              /* memfd for the RESUME that follows, -1 none */
	struct app_message *out; /* what its socket does not take yet, oldest first */
	struct app_message **out_last;
	unsigned int out_count;
};

struct received {
	char data[FERRY_APP_MESSAGE_MAX + 1];
	ssize_t size;
	int fds[FERRY_APP_SOCKETS];
	unsigned int count;
	bool cut; /* there were more descriptors than this process may have */
};

/* app.c: acts on one message; what it takes of fds is -1 afterwards. Non-zero ends app. */
int app_message(struct app *app, struct received *in);
/* app.c: its units are given up, its moves fail. */
void app_gone(struct app *app);

#endif
