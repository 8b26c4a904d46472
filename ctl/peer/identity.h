/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this node shows to others and believes of them: DIR/NODE.crt, DIR/NODE.key and DIR/ca.crt,
 * as a TLS context. Read at the start, where all must be right, and again when a file has changed,
 * where what does not fit together leaves the old ones in use. Connections keep what they began
 * with.
 */
#ifndef PEER_IDENTITY_H
#define PEER_IDENTITY_H

#include <openssl/ssl.h>
#include <stddef.h>

struct identity;

/* user: the agent's, whose the key may be. 0, or -errno and a sentence that names file, cause and
 * remedy. */
int identity_load(struct identity **ret, const char *dir, const char *node, uid_t user,
		  char *error, size_t size);
void identity_free(struct identity *id);
/* To be called before a connection is made. 0: nothing has changed; 1: the new files are in use;
 * -errno and a sentence, once for each change: they are not, and the old ones still are. */
int identity_refresh(struct identity *id, char *error, size_t size);
/* For new connections, until the next refresh. */
SSL_CTX *identity_context(const struct identity *id);

#endif
