/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The authority of `ferry pki` (ctl/pki/authority.h) and what an agent takes of it at its start
 * (ctl/peer/identity.h): each file that is missing or wrong keeps it from starting, in a sentence
 * that names file, cause and remedy; and each change of the files afterwards is used when it is
 * right, and leaves the old ones in use when it is not.
 */
#include <fcntl.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <time.h>
#include "identity_world.h"

static char *file(const char *name, const char *suffix)
{
	static char paths[4][PATH_MAX];
	static unsigned int n;
	char *path = paths[n++ % 4]; /* good for a few calls */

	assert_int_equal(pki_path(path, pki, name, suffix), 0);
	return path;
}

static void issue(const char *node)
{
	char path[PATH_MAX];
	bool replaced;

	assert_int_equal(authority_issue(pki, node, 10, &replaced, path), 0);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void copy(const char *from, const char *to)
{
	char command[2 * PATH_MAX + 16];

	snprintf(command, sizeof(command), "cp -p %s %s", from, to);
	assert_int_equal(system(command), 0);
}

static void an_authority_is_not_overwritten(void **state)
{
	char path[PATH_MAX], before[FINGERPRINT_TEXT], after[FINGERPRINT_TEXT];
	X509 *ca;

	(void)state;
	assert_int_equal(cert_read(file("ca", "crt"), &ca), 0);
	cert_fingerprint(ca, before);
	X509_free(ca);
	assert_int_equal(authority_make(pki, 10, path), -EEXIST);
	assert_string_equal(path, file("ca", "crt"));
	/* nor is its key, where the certificate has been moved away */
	assert_int_equal(rename(file("ca", "crt"), file("away", "key")), 0);
	assert_int_equal(authority_make(pki, 10, path), -EEXIST);
	assert_string_equal(path, file("ca", "key"));
	assert_int_equal(rename(file("away", "key"), file("ca", "crt")), 0);
	assert_int_equal(cert_read(file("ca", "crt"), &ca), 0);
	assert_string_equal(cert_fingerprint(ca, after), before);
	X509_free(ca);
}

static void what_a_certificate_says(void **state)
{
	int64_t from, to, now = time(NULL);
	X509 *cert, *other;
	char node[NODE_NAME];
	struct stat st;

	(void)state;
	assert_int_equal(cert_read(file("one", "crt"), &cert), 0);
	assert_int_equal(cert_read(file("two", "crt"), &other), 0);
	cert_node(cert, node);
	assert_string_equal(node, "one");
	cert_dates(cert, &from, &to);
	assert_true(now - from >= SKEW_S && now - from < SKEW_S + 60);
	assert_true(to <= now + 10 * 86400 && to > now + 10 * 86400 - 60);
	assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(cert),
					      X509_get0_serialNumber(other)), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(stat(file(i ? "one" : "ca", "key"), &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	X509_free(cert);
	X509_free(other);
}

static void no_certificate_outlives_its_authority(void **state)
{
	int64_t from, to, ca_to;
	char path[PATH_MAX];
	bool replaced;
	X509 *cert, *ca;

	(void)state;
	assert_int_equal(authority_issue(pki, "three", 1000, &replaced, path), 0);
	assert_int_equal(cert_read(file("three", "crt"), &cert), 0);
	assert_int_equal(cert_read(file("ca", "crt"), &ca), 0);
	cert_dates(cert, &from, &to);
	cert_dates(ca, &from, &ca_to);
	assert_int_equal(to, ca_to);
	X509_free(cert);
	X509_free(ca);
	issue("three");
	assert_int_equal(authority_issue(pki, "three", 10, &replaced, path), 0);
	assert_true(replaced);
}

static void ca_key_of_another(void **state)
{
	char path[PATH_MAX];
	bool replaced;

	(void)state;
	copy(file("ca", "key"), file("away", "key"));
	copy(file("one", "key"), file("ca", "key"));
	assert_int_equal(authority_issue(pki, "three", 10, &replaced, path), -ENOKEY);
	assert_int_equal(chmod(file("ca", "key"), 0644), 0);
	assert_int_equal(authority_issue(pki, "three", 10, &replaced, path), -EPERM);
	assert_int_equal(rename(file("away", "key"), file("ca", "key")), 0);
	issue("three");
}

/* Each makes three's files wrong; the test makes them right again. */
static void missing_ca(void)
{
	assert_int_equal(unlink(file("ca", "crt")), 0);
}
static void missing_certificate(void)
{
	assert_int_equal(unlink(file("three", "crt")), 0);
}
static void missing_key(void)
{
	assert_int_equal(unlink(file("three", "key")), 0);
}
static void readable_key(void)
{
	assert_int_equal(chmod(file("three", "key"), 0640), 0);
}
static void key_of_another(void)
{
	copy(file("one", "key"), file("three", "key"));
}
static void certificate_of_another(void)
{
	copy(file("one", "key"), file("three", "key"));
	copy(file("one", "crt"), file("three", "crt"));
}
static void garbage_certificate(void)
{
	write_text(file("three", "crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n");
}
static void garbage_key(void)
{
	write_text(file("three", "key"), "no key");
}
static void ca_of_another(void)
{
	copy(file("one", "crt"), file("ca", "crt"));
}

static void with_dates(long from, long to)
{
	_cleanup_key_ EVP_PKEY *key = NULL;
	_cleanup_cert_ X509 *cert = NULL;
	FILE *f;

	assert_int_equal(cert_read(file("three", "crt"), &cert), 0);
	assert_int_equal(key_read(file("ca", "key"), 0, &key), 0);
	ASN1_TIME_set(X509_getm_notBefore(cert), time(NULL) + from);
	ASN1_TIME_set(X509_getm_notAfter(cert), time(NULL) + to);
	assert_true(X509_sign(cert, key, EVP_sha256()));
	f = fopen(file("three", "crt"), "w");
	assert_non_null(f);
	assert_true(PEM_write_X509(f, cert));
	fclose(f);
}
static void expired(void)
{
	with_dates(-7200, -10);
}
static void not_yet(void)
{
	with_dates(3600, 7200);
}

static const struct {
	const char *name;
	void (*spoil)(void);
	const char *words[3]; /* in what is said */
} rows[] = {
	{ "no ca.crt", missing_ca, { "/ca.crt", "No such file", "ferry pki" } },
	{ "no certificate", missing_certificate, { "/three.crt", "No such file", "ferry pki" } },
	{ "no key", missing_key, { "/three.key", "No such file", "ferry pki issue three" } },
	{ "a key that others read", readable_key, { "/three.key", "may read it", "mode 600" } },
	{ "another's key", key_of_another, { "/three.key", "not the key of", "pki issue three" } },
	{ "another's pair", certificate_of_another, { "/three.crt", "'one'", "pki issue three" } },
	{ "no PEM", garbage_certificate, { "/three.crt", "no certificate", "pki issue three" } },
	{ "no PEM key", garbage_key, { "/three.key", "no key", "ferry pki issue three" } },
	{ "another authority", ca_of_another, { "/three.crt", "not issued by", "pki issue" } },
	{ "expired", expired, { "/three.crt", "ended", "ferry pki issue three" } },
	{ "not yet valid", not_yet, { "/three.crt", "begins", "clock says" } },
};

/* At the start, and as a change under a running agent, which keeps what it has. */
static void what_is_wrong_is_said(void **state)
{
	char error[512];

	(void)state;
	copy(file("ca", "crt"), file("away", "key"));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct identity *good, *bad = NULL;
		SSL_CTX *before;

		issue("three");
		assert_int_equal(identity_load(&good, pki, "three", 0, error, sizeof(error)), 0);
		before = identity_context(good);
		assert_int_equal(identity_refresh(good, error, sizeof(error)), 0);
		rows[i].spoil();
		assert_true(identity_load(&bad, pki, "three", 0, error, sizeof(error)) < 0);
		printf("%s: %s\n", rows[i].name, error);
		for (int k = 0; k < 3; k++)
			assert_non_null(strstr(error, rows[i].words[k]));
		error[0] = '\0';
		assert_true(identity_refresh(good, error, sizeof(error)) < 0);
		assert_non_null(strstr(error, rows[i].words[1]));
		assert_ptr_equal(identity_context(good), before);
		assert_int_equal(identity_refresh(good, error, sizeof(error)), 0); /* said once */
		copy(file("away", "key"), file("ca", "crt"));
		issue("three");
		assert_int_equal(identity_refresh(good, error, sizeof(error)), 1);
		identity_free(good);
	}
	unlink(file("away", "key"));
}

static int setup(void **state)
{
	int r = make_identities(state);

	issue("three");
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_authority_is_not_overwritten),
		cmocka_unit_test(what_a_certificate_says),
		cmocka_unit_test(no_certificate_outlives_its_authority),
		cmocka_unit_test(ca_key_of_another),
		cmocka_unit_test(what_is_wrong_is_said),
	};

	return cmocka_run_group_tests(tests, setup, drop_identities);
}
