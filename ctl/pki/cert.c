// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads certificates and keys, and says what is in them, see cert.h. Whether one is to be trusted
 * is not decided here: that is ctl/peer/tls.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "pki/cert.h"

int pki_path(char path[PATH_MAX], const char *dir, const char *name, const char *suffix)
{
	int n = snprintf(path, PATH_MAX, "%s/%s.%s", dir, name, suffix);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int cert_read(const char *path, X509 **cert)
{
	FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	*cert = PEM_read_X509(f, NULL, NULL, NULL);
	fclose(f);
	ERR_clear_error();
	return *cert ? 0 : -EBADMSG;
}

/* A key in a file that asks for a passphrase is refused, not asked for. */
static int no_passphrase(char *buf, int size, int write, void *arg)
{
	(void)buf, (void)size, (void)write, (void)arg;
	return -1;
}

int key_read(const char *path, uid_t user, EVP_PKEY **key)
{
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f)
		return -errno;
	if (fstat(fileno(f), &st) || st.st_mode & 077 ||
	    (st.st_uid && st.st_uid != geteuid() && st.st_uid != user)) {
		fclose(f);
		return -EPERM;
	}
	*key = PEM_read_PrivateKey(f, NULL, no_passphrase, NULL);
	fclose(f);
	ERR_clear_error();
	return *key ? 0 : -EBADMSG;
}

/* What stands behind "ferry:", where it is a name; a 0 octet in it makes it none. */
static bool node_of_uri(const ASN1_IA5STRING *uri, char node[NODE_NAME])
{
	const char *text = (const char *)ASN1_STRING_get0_data(uri);
	size_t size = (size_t)ASN1_STRING_length(uri), prefix = strlen(CERT_URI);

	if (size < prefix || memcmp(text, CERT_URI, prefix) || size - prefix >= NODE_NAME)
		return false;
	memcpy(node, text + prefix, size - prefix);
	node[size - prefix] = '\0';
	return strlen(node) == size - prefix && name_valid(node);
}

void cert_node(const X509 *cert, char node[NODE_NAME])
{
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	int found = 0;

	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

		if (name->type == GEN_URI)
			found += node_of_uri(name->d.uniformResourceIdentifier, node) ? 1 : 2;
	}
	GENERAL_NAMES_free(names);
	if (found != 1)
		node[0] = '\0';
}

static int64_t seconds(const ASN1_TIME *t)
{
	struct tm tm;

	return ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

void cert_dates(const X509 *cert, int64_t *from, int64_t *to)
{
	*from = seconds(X509_get0_notBefore(cert));
	*to = seconds(X509_get0_notAfter(cert));
}

const char *time_text(int64_t when, char text[TIME_TEXT])
{
	time_t t = (time_t)when;
	struct tm tm = {};

	gmtime_r(&t, &tm);
	strftime(text, TIME_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm);
	return text;
}

const char *cert_fingerprint(const X509 *cert, char text[FINGERPRINT_TEXT])
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	text[0] = '\0';
	if (!X509_digest(cert, EVP_sha256(), hash, &size) || size != 32)
		return text;
	for (unsigned int i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", hash[i]);
	return text;
}
