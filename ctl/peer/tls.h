/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection's TLS 1.3, both sides with a certificate, over a socket that never blocks. No
 * tickets, no resumption, no early data, no renegotiation, no compression: every connection proves
 * anew who it is. The calls in their order: tls_new(), tls_handshake() until it is 0, then
 * tls_read() and tls_write() as they are wanted, tls_free() (which says goodbye), close.
 * Each may say -EAGAIN: then tls_wants() says for what, which need not be the direction of the
 * call. -EPROTO: refused, and tls_reason() says why; any other -errno is the connection's.
 */
#ifndef PEER_TLS_H
#define PEER_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/util.h"
#include "peer/reason.h"

/* One authority, one certificate. NULL: OpenSSL does not take them. */
SSL_CTX *tls_context(X509 *ca, X509 *cert, EVP_PKEY *key);

struct tls;
/* node: the only one that may be at the other end. fd stays the caller's. 0 or -ENOMEM. */
int tls_new(struct tls **ret, SSL_CTX *context, int fd, bool dialed, const char *node);
void tls_free(struct tls *t);
int tls_handshake(struct tls *t);
/* Octets; 0 is the end. */
ssize_t tls_read(struct tls *t, void *to, size_t size);
ssize_t tls_write(struct tls *t, const void *from, size_t size);
/* EPOLLIN or EPOLLOUT, after -EAGAIN. */
uint32_t tls_wants(const struct tls *t);
/* The node that the certificate of the other side names, "" none (yet). */
const char *tls_node(const struct tls *t);
/* detail: for the log, may be "". */
enum peer_reason tls_reason(const struct tls *t, const char **detail);

#endif
