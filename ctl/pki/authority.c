// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes the authority and issues certificates, see authority.h. P-256 keys, random serials.
 * Invariant: a file is there whole or not at all (a temporary name, then rename), and a key is
 * never readable by others, not for a moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "pki/authority.h"

#define DAY_S 86400
#define NEW "new" /* suffix of a temporary name */

static int make_directories(const char *dir)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return 0;
}

/* Writes cert or key under a temporary name beside path. */
static int write_new(const char *path, const X509 *cert, const EVP_PKEY *key)
{
	char temporary[PATH_MAX];
	int fd, r = 0;
	FILE *f;

	if (snprintf(temporary, sizeof(temporary), "%s." NEW, path) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	unlink(temporary); /* of an attempt that was interrupted */
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, key ? 0600 : 0644);
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	if (key ? !PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) :
		  !PEM_write_X509(f, cert))
		r = -EIO;
	if (!r && (fflush(f) || fsync(fd)))
		r = -errno;
	fclose(f);
	return r;
}

static int put(const char *dir, const char *name, const X509 *cert, const EVP_PKEY *key,
	       bool replace, char path[PATH_MAX])
{
	char temporary[PATH_MAX + 8];
	int r = pki_path(path, dir, name, key ? "key" : "crt");

	r = r ? r : write_new(path, cert, key);
	if (r)
		return r;
	snprintf(temporary, sizeof(temporary), "%s." NEW, path);
	if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, replace ? 0 : RENAME_NOREPLACE)) {
		r = -errno;
		unlink(temporary);
	}
	return r;
}

static bool extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *e;
	X509V3_CTX ctx;
	bool done;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	done = e && X509_add_ext(cert, e, -1);
	X509_EXTENSION_free(e);
	return done;
}

static bool set_serial(X509 *cert)
{
	BIGNUM *n = BN_new();
	bool done = n && BN_rand(n, 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
		    BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));

	BN_free(n);
	return done;
}

static bool set_subject(X509 *cert, const char *name)
{
	return X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
					  (const unsigned char *)name, -1, -1, 0);
}

/* All but subject, issuer, extensions and signature. */
static X509 *blank(EVP_PKEY *key, int64_t to)
{
	time_t from = time(NULL) - SKEW_S, end = (time_t)to;
	X509 *cert = X509_new();

	if (cert && X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
	    X509_set_pubkey(cert, key) && ASN1_TIME_set(X509_getm_notBefore(cert), from) &&
	    ASN1_TIME_set(X509_getm_notAfter(cert), end))
		return cert;
	X509_free(cert);
	return NULL;
}

/* Two authorities never have the same name: a certificate of the other one is from somebody
 * unknown, and not one with a bad signature. */
static X509 *ca_certificate(EVP_PKEY *key, int days)
{
	_cleanup_cert_ X509 *cert = blank(key, time(NULL) + (int64_t)days * DAY_S);
	char name[64];
	uint64_t id;
	X509 *done;

	if (!cert || random_bytes(&id, sizeof(id)))
		return NULL;
	snprintf(name, sizeof(name), "ferry CA %016llx", (unsigned long long)id);
	if (!set_subject(cert, name) || !X509_set_issuer_name(cert, X509_get_subject_name(cert)) ||
	    !extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
	    !extend(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
	    !extend(cert, cert, NID_subject_key_identifier, "hash") ||
	    !X509_sign(cert, key, EVP_sha256()))
		return NULL;
	done = cert;
	cert = NULL;
	return done;
}

static X509 *node_certificate(const char *node, EVP_PKEY *key, X509 *ca, EVP_PKEY *ca_key,
			      int64_t to)
{
	_cleanup_cert_ X509 *cert = blank(key, to);
	char uri[sizeof("URI:" CERT_URI) + NODE_NAME];
	X509 *done;

	snprintf(uri, sizeof(uri), "URI:" CERT_URI "%s", node);
	if (!cert || !set_subject(cert, node) ||
	    !X509_set_issuer_name(cert, X509_get_subject_name(ca)) ||
	    !extend(cert, ca, NID_basic_constraints, "critical,CA:FALSE") ||
	    !extend(cert, ca, NID_key_usage, "critical,digitalSignature") ||
	    !extend(cert, ca, NID_ext_key_usage, "serverAuth,clientAuth") ||
	    !extend(cert, ca, NID_subject_key_identifier, "hash") ||
	    !extend(cert, ca, NID_authority_key_identifier, "keyid") ||
	    !extend(cert, ca, NID_subject_alt_name, uri) || !X509_sign(cert, ca_key, EVP_sha256()))
		return NULL;
	done = cert;
	cert = NULL;
	return done;
}

int authority_make(const char *dir, int days, char path[PATH_MAX])
{
	_cleanup_key_ EVP_PKEY *key = EVP_EC_gen("P-256");
	_cleanup_cert_ X509 *cert = key ? ca_certificate(key, days) : NULL;
	int r = make_directories(dir);

	snprintf(path, PATH_MAX, "%s", dir);
	if (r)
		return r;
	if (!cert)
		return -ENOMEM;
	/* half an authority is one that somebody has to look at */
	r = pki_path(path, dir, CA_NAME, "crt");
	if (r || !access(path, F_OK))
		return r ? r : -EEXIST;
	r = put(dir, CA_NAME, NULL, key, false, path);
	return r ? r : put(dir, CA_NAME, cert, NULL, false, path);
}

static int read_authority(const char *dir, X509 **ca, EVP_PKEY **key, char path[PATH_MAX])
{
	int r = pki_path(path, dir, CA_NAME, "crt");

	r = r ? r : cert_read(path, ca);
	r = r ? r : pki_path(path, dir, CA_NAME, "key");
	r = r ? r : key_read(path, geteuid(), key);
	if (r)
		return r;
	return X509_check_private_key(*ca, *key) == 1 ? 0 : -ENOKEY;
}

int authority_issue(const char *dir, const char *node, int days, bool *replaced,
		    char path[PATH_MAX])
{
	_cleanup_key_ EVP_PKEY *ca_key = NULL, *key = EVP_EC_gen("P-256");
	_cleanup_cert_ X509 *ca = NULL, *cert = NULL;
	int64_t from, end, to = time(NULL) + (int64_t)days * DAY_S;
	int r = read_authority(dir, &ca, &ca_key, path);

	if (r)
		return r;
	cert_dates(ca, &from, &end);
	if (end <= time(NULL))
		return -EKEYEXPIRED;
	cert = key ? node_certificate(node, key, ca, ca_key, to < end ? to : end) : NULL;
	if (!cert)
		return -ENOMEM;
	r = pki_path(path, dir, node, "crt");
	*replaced = !r && !access(path, F_OK);
	/* an agent that reads in between finds another certificate's key, and keeps what it has */
	r = r ? r : put(dir, node, NULL, key, true, path);
	return r ? r : put(dir, node, cert, NULL, true, path);
}
