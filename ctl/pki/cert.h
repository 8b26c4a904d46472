/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificates as ferry uses them: what a node's says, and where its files are. A node is known by
 * one subjectAltName, the URI "ferry:NAME", compared octet by octet: no wildcards, no case, and no
 * certificate that was made for something else can be taken for a node's.
 */
#ifndef PKI_CERT_H
#define PKI_CERT_H

#include <limits.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/util.h"

#define PKI_DIR "/etc/ferry/pki"
#define CERT_URI "ferry:"

static inline void cert_free(X509 **c)
{
	X509_free(*c);
}
static inline void key_free(EVP_PKEY **k)
{
	EVP_PKEY_free(*k);
}
#define _cleanup_cert_ __attribute__((cleanup(cert_free)))
#define _cleanup_key_ __attribute__((cleanup(key_free)))

/* DIR/NAME.SUFFIX, suffix "crt" or "key". 0 or -ENAMETOOLONG. */
int pki_path(char path[PATH_MAX], const char *dir, const char *name, const char *suffix);
/* 0, -errno of the file, -EBADMSG: not what is wanted in PEM. */
int cert_read(const char *path, X509 **cert);
/* Also -EPERM: somebody else than its owner may read it, or the owner is neither root, nor we, nor
 * the user who is to have it. */
int key_read(const char *path, uid_t user, EVP_PKEY **key);
/* The node that it names; "" where it names none, or more than one, or one with a wrong name. */
void cert_node(const X509 *cert, char node[NODE_NAME]);
/* First and last second, as time(2) counts. */
void cert_dates(const X509 *cert, int64_t *from, int64_t *to);
#define TIME_TEXT 32
/* "2026-11-29 10:00:00 UTC" */
const char *time_text(int64_t seconds, char text[TIME_TEXT]);
/* SHA-256 of the certificate, hexadecimal. */
#define FINGERPRINT_TEXT 65
const char *cert_fingerprint(const X509 *cert, char text[FINGERPRINT_TEXT]);

#endif
