// SPDX-License-Identifier: BSD-2-Clause
/*
 * Loads and reloads this node's files, see identity.h. What a file may be wrong in is found here,
 * before anybody connects; what a peer's certificate may be wrong in is found in tls.c.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "peer/identity.h"
#include "peer/tls.h"
#include "pki/cert.h"

enum { CA, CERT, KEY, FILES };

struct mark { /* tells one state of a file from the next */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec changed;
};

struct identity {
	char path[FILES][PATH_MAX], node[NODE_NAME];
	uid_t user;
	struct mark seen[FILES];
	SSL_CTX *context;
};

struct complaint {
	char *text;
	size_t size;
};

static int wrong(const struct complaint *c, int error, const char *format, ...) _printf_(3, 4);

static int wrong(const struct complaint *c, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->text, c->size, format, args);
	va_end(args);
	return error;
}

static int unreadable(const struct identity *id, int file, int r, const struct complaint *c)
{
	const char *path = id->path[file];

	if (r == -EPERM)
		return wrong(c, r,
			     "%s: others than its owner may read it, or it is somebody else's: make "
			     "it the agent's user's (%u), with mode 600",
			     path, id->user);
	if (r == -EBADMSG)
		return wrong(c, r,
			     "%s: holds no %s in PEM: make it again with 'ferry pki issue %s'",
			     path, file == KEY ? "key" : "certificate", id->node);
	return wrong(c, r,
		     "%s: %s: the nodes of a fleet know each other by certificates; make them with "
		     "'ferry pki init' and 'ferry pki issue %s', and bring ca.crt, %s.crt and "
		     "%s.key here",
		     path, strerror(-r), id->node, id->node, id->node);
}

/* Ours, as the others will look at it. */
static int check_own(const struct identity *id, X509 *ca, X509 *cert, const struct complaint *c)
{
	char node[NODE_NAME], date[TIME_TEXT], clock[TIME_TEXT];
	_cleanup_key_ EVP_PKEY *issuer = X509_get_pubkey(ca);
	int64_t from, to, now = time(NULL);

	cert_node(cert, node);
	if (strcmp(node, id->node))
		return wrong(c, -EINVAL,
			     "%s: is the certificate of '%s', not of '%s': make it with 'ferry pki "
			     "issue %s'",
			     id->path[CERT], node, id->node, id->node);
	if (!issuer || X509_verify(cert, issuer) != 1)
		return wrong(c, -EINVAL,
			     "%s: was not issued by the authority in %s: bring both from one "
			     "place, or 'ferry pki issue %s'",
			     id->path[CERT], id->path[CA], id->node);
	cert_dates(cert, &from, &to);
	if (now > to || now < from)
		return wrong(c, -EINVAL,
			     "%s: %s %s, and the clock says %s: set the clock, or 'ferry pki issue "
			     "%s'",
			     id->path[CERT], now > to ? "ended" : "begins",
			     time_text(now > to ? to : from, date), time_text(now, clock),
			     id->node);
	cert_dates(ca, &from, &to);
	if (now > to || now < from)
		return wrong(c, -EINVAL,
			     "%s: %s %s, and the clock says %s: set the clock, or make another "
			     "authority with 'ferry pki init'",
			     id->path[CA], now > to ? "ended" : "begins",
			     time_text(now > to ? to : from, date), time_text(now, clock));
	return 0;
}

static int load(const struct identity *id, SSL_CTX **ret, const struct complaint *c)
{
	_cleanup_cert_ X509 *ca = NULL, *cert = NULL;
	_cleanup_key_ EVP_PKEY *key = NULL;
	int r = cert_read(id->path[CA], &ca);

	if (r)
		return unreadable(id, CA, r, c);
	r = cert_read(id->path[CERT], &cert);
	if (r)
		return unreadable(id, CERT, r, c);
	r = key_read(id->path[KEY], id->user, &key);
	if (r)
		return unreadable(id, KEY, r, c);
	if (X509_check_private_key(cert, key) != 1) {
		ERR_clear_error();
		return wrong(c, -EINVAL,
			     "%s: is not the key of %s: bring both from one place, or 'ferry pki "
			     "issue %s'",
			     id->path[KEY], id->path[CERT], id->node);
	}
	r = check_own(id, ca, cert, c);
	ERR_clear_error();
	if (r)
		return r;
	*ret = tls_context(ca, cert, key);
	return *ret ? 0 :
		      wrong(c, -EINVAL,
			    "%s: OpenSSL does not take it: make it again with 'ferry pki issue %s'",
			    id->path[CERT], id->node);
}

static void look(const struct identity *id, struct mark marks[FILES])
{
	memset(marks, 0, FILES * sizeof(*marks));
	for (int i = 0; i < FILES; i++) {
		struct stat st;

		if (stat(id->path[i], &st))
			continue;
		marks[i].dev = st.st_dev;
		marks[i].ino = st.st_ino;
		marks[i].size = st.st_size;
		marks[i].changed = st.st_ctim;
	}
}

int identity_load(struct identity **ret, const char *dir, const char *node, uid_t user,
		  char *error, size_t size)
{
	struct complaint c = { error, size };
	struct identity *id = calloc(1, sizeof(*id));
	int r = id ? 0 : -ENOMEM;

	if (r)
		return wrong(&c, r, "no memory");
	snprintf(id->node, sizeof(id->node), "%s", node);
	id->user = user;
	if (pki_path(id->path[CA], dir, "ca", "crt") ||
	    pki_path(id->path[CERT], dir, node, "crt") || pki_path(id->path[KEY], dir, node, "key"))
		r = wrong(&c, -ENAMETOOLONG, "pki: the path is too long: %s", dir);
	look(id, id->seen);
	r = r ? r : load(id, &id->context, &c);
	if (r)
		identity_free(id);
	else
		*ret = id;
	return r;
}

void identity_free(struct identity *id)
{
	if (!id)
		return;
	SSL_CTX_free(id->context);
	free(id);
}

int identity_refresh(struct identity *id, char *error, size_t size)
{
	struct complaint c = { error, size };
	struct mark now[FILES];
	SSL_CTX *context;
	int r;

	look(id, now); /* before it is read: a change in between is seen the next time */
	if (!memcmp(now, id->seen, sizeof(now)))
		return 0;
	memcpy(id->seen, now, sizeof(now));
	r = load(id, &context, &c);
	if (r)
		return r;
	SSL_CTX_free(id->context); /* connections hold their own reference */
	id->context = context;
	return 1;
}

SSL_CTX *identity_context(const struct identity *id)
{
	return id->context;
}
