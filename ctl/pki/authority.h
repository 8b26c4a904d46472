/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fleet's certificate authority: one directory with ca.crt and ca.key, and a NODE.crt and
 * NODE.key for each node. Used by `ferry pki`; an agent only reads its own three files.
 */
#ifndef PKI_AUTHORITY_H
#define PKI_AUTHORITY_H

#include "pki/cert.h"

#define CA_NAME "ca"
#define CA_DAYS 3650
#define CA_DAYS_MAX 7300
#define NODE_DAYS 365
#define NODE_DAYS_MAX 1825
#define SKEW_S 3600 /* notBefore is so long ago: clocks differ */

/* Makes the directory where it is missing, and the authority in it. 0; -EEXIST: there is one;
 * -errno, and *path is the file that it is about. */
int authority_make(const char *dir, int days, char path[PATH_MAX]);
/* A new key and certificate of a node, in the place of what it had (*replaced). Ends with the
 * authority at the latest. 0; -ENOKEY: ca.key is not that of ca.crt; -EKEYEXPIRED: the authority
 * has ended; -errno, and *path is the file. */
int authority_issue(const char *dir, const char *node, int days, bool *replaced,
		    char path[PATH_MAX]);

#endif
