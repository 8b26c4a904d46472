/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is let in (ctl/peer/tls.h), over a socket pair, each wrong certificate shown by whoever dials
 * and by whoever answers: refused by its own reason, and the other side is told. The
 * control is the right certificate, which is let in both ways, by the same code.
 */
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/epoll.h>
#include <time.h>
#include "identity_world.h"
#include "peer/tls.h"

/* What a row changes of a good certificate before it is signed once more. */
struct change {
	long from, to;		 /* seconds from now, 0: as it is */
	const char *san, *usage; /* instead of its own */
	bool stranger;		 /* signed by another authority */
	bool by_node;		 /* signed by node three, which shows its own, too */
	const char *node;	 /* issued for; NULL: "one" */
};

static void replace(X509 *cert, int nid, const char *value)
{
	int at = X509_get_ext_by_NID(cert, nid, -1);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	assert_true(at >= 0 && e);
	X509_EXTENSION_free(X509_delete_ext(cert, at));
	assert_true(X509_add_ext(cert, e, -1));
	X509_EXTENSION_free(e);
}

/* A context that shows such a certificate and takes whatever the other side shows. */
static SSL_CTX *make(const struct change *c)
{
	_cleanup_key_ EVP_PKEY *key = NULL, *ca_key = NULL, *strange = EVP_EC_gen("P-256");
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	_cleanup_cert_ X509 *cert = NULL, *issuer = NULL;
	const char *node = c->node ? c->node : "one";
	char path[PATH_MAX];

	pki_path(path, pki, node, "crt");
	assert_int_equal(cert_read(path, &cert), 0);
	pki_path(path, pki, node, "key");
	assert_int_equal(key_read(path, 0, &key), 0);
	pki_path(path, pki, "ca", "key");
	assert_int_equal(key_read(path, 0, &ca_key), 0);
	if (c->from)
		ASN1_TIME_set(X509_getm_notBefore(cert), time(NULL) + c->from);
	if (c->to)
		ASN1_TIME_set(X509_getm_notAfter(cert), time(NULL) + c->to);
	if (c->san)
		replace(cert, NID_subject_alt_name, c->san);
	if (c->usage)
		replace(cert, NID_ext_key_usage, c->usage);
	if (c->stranger)
		X509_NAME_add_entry_by_txt(X509_get_issuer_name(cert), "CN", MBSTRING_ASC,
					   (const unsigned char *)"stranger", -1, -1, 0);
	if (c->by_node) {
		X509_free(issuer);
		EVP_PKEY_free(ca_key);
		pki_path(path, pki, "three", "crt");
		assert_int_equal(cert_read(path, &issuer), 0);
		pki_path(path, pki, "three", "key");
		assert_int_equal(key_read(path, 0, &ca_key), 0);
		assert_true(X509_set_issuer_name(cert, X509_get_subject_name(issuer)));
		X509_EXTENSION_free(X509_delete_ext(
			cert, X509_get_ext_by_NID(cert, NID_authority_key_identifier, -1)));
	}
	assert_true(X509_sign(cert, c->stranger ? strange : ca_key, EVP_sha256()));
	assert_true(SSL_CTX_use_certificate(context, cert));
	assert_true(SSL_CTX_use_PrivateKey(context, key));
	if (c->by_node)
		assert_true(SSL_CTX_add1_chain_cert(context, issuer));
	return context;
}

struct meeting {
	struct tls *ours; /* node two, by the code under test */
	SSL *theirs;
	int fds[2], error;
	bool theirs_done;
};

static void begin(struct meeting *m, SSL_CTX *theirs, bool we_dial)
{
	memset(m, 0, sizeof(*m));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, m->fds),
			 0);
	assert_int_equal(tls_new(&m->ours, identity_context(two), m->fds[0], we_dial, "one"), 0);
	if (!theirs)
		return;
	m->theirs = SSL_new(theirs);
	SSL_set_fd(m->theirs, m->fds[1]);
	if (we_dial)
		SSL_set_accept_state(m->theirs);
	else
		SSL_set_connect_state(m->theirs);
}

/* Both sides take turns until ours has decided. */
static void meet(struct meeting *m)
{
	char octet;

	m->error = -EAGAIN;
	for (int i = 0; i < 100 && m->error == -EAGAIN; i++) {
		if (m->theirs && !m->theirs_done)
			m->theirs_done = SSL_do_handshake(m->theirs) == 1;
		m->error = tls_handshake(m->ours);
	}
	/* whoever dialed hears only then that it is refused */
	for (int i = 0; i < 100 && !m->error; i++) {
		ssize_t n;

		if (m->theirs && !m->theirs_done)
			m->theirs_done = SSL_do_handshake(m->theirs) == 1;
		n = tls_read(m->ours, &octet, 1);
		if (n != -EAGAIN)
			m->error = n < 0 ? (int)n : 0;
	}
}

static enum peer_reason finish(struct meeting *m, char text[256])
{
	const char *detail;
	enum peer_reason reason = tls_reason(m->ours, &detail);

	snprintf(text, 256, "%s; %s", peer_reason_id(reason), detail);
	tls_free(m->ours);
	SSL_free(m->theirs);
	close(m->fds[0]);
	close(m->fds[1]);
	return reason;
}

#define HOUR 3600L

static const struct {
	const char *name;
	struct change change;
	enum peer_reason reason;
	const char *word; /* in the detail */
} rows[] = {
	{ "right", {}, PEER_NONE, "" },
	{ "another authority", { .stranger = true }, PEER_UNKNOWN_CA, "ca.crt" },
	{ "issued by another node", { .by_node = true }, PEER_CERTIFICATE, "invalid CA" },
	{ "expired", { .from = -2 * HOUR, .to = -HOUR }, PEER_EXPIRED, "our clock says" },
	{ "expired a second ago", { .to = -1 }, PEER_EXPIRED, "UTC" },
	{ "not yet valid", { .from = HOUR }, PEER_NOT_YET, "our clock says" },
	{ "another node's", { .node = "three" }, PEER_WRONG_NAME, "it is three's, one's" },
	{ "case", { .san = "URI:ferry:One" }, PEER_WRONG_NAME, "One" },
	{ "a prefix of the name", { .san = "URI:ferry:on" }, PEER_WRONG_NAME, "on" },
	{ "another scheme", { .san = "URI:http://one" }, PEER_CERTIFICATE, "no node" },
	{ "a DNS name", { .san = "DNS:one" }, PEER_CERTIFICATE, "no node" },
	{ "two names", { .san = "URI:ferry:one,URI:ferry:two" }, PEER_CERTIFICATE, "no node" },
	{ "the name and a URI", { .san = "URI:ferry:one,URI:http://x" }, PEER_CERTIFICATE, "no" },
	{ "a name and DNS", { .san = "URI:ferry:one,DNS:one.example" }, PEER_NONE, "" },
	{ "a name that is none", { .san = "URI:ferry:../one" }, PEER_CERTIFICATE, "no node" },
	{ "an empty name", { .san = "URI:ferry:" }, PEER_CERTIFICATE, "no node" },
	{ "for e-mail", { .usage = "emailProtection" }, PEER_CERTIFICATE, "purpose" },
};

static void each_certificate_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
		bool we_dial = i % 2;
		SSL_CTX *theirs = make(&rows[i / 2].change);
		enum peer_reason reason;
		struct meeting m;
		char text[256];

		begin(&m, theirs, we_dial);
		meet(&m);
		reason = finish(&m, text);
		printf("%s, %s: %s\n", rows[i / 2].name, we_dial ? "dialed" : "accepted", text);
		assert_int_equal(reason, rows[i / 2].reason);
		assert_non_null(strstr(text, rows[i / 2].word));
		assert_int_equal(m.error, reason ? -EPROTO : 0);
		SSL_CTX_free(theirs);
	}
}

static void only_tls_1_3(void **state)
{
	(void)state;
	for (int we_dial = 0; we_dial < 2; we_dial++) {
		SSL_CTX *theirs = make(&(struct change){});
		struct meeting m;
		char text[256];

		SSL_CTX_set_max_proto_version(theirs, TLS1_2_VERSION);
		begin(&m, theirs, we_dial);
		meet(&m);
		assert_int_equal(finish(&m, text), PEER_TLS_VERSION);
		SSL_CTX_free(theirs);
	}
}

static void no_certificate(void **state)
{
	SSL_CTX *theirs = SSL_CTX_new(TLS_method());
	struct meeting m;
	char text[256];

	(void)state;
	begin(&m, theirs, false);
	meet(&m);
	assert_int_equal(finish(&m, text), PEER_NO_CERTIFICATE);
	SSL_CTX_free(theirs);
}

static void what_is_no_tls(void **state)
{
	static const char *const texts[] = { "GET / HTTP/1.1\r\n\r\n", "FRRY plain frames, as once",
					     "SSH-2.0-OpenSSH_9.2\r\n" };

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(texts); i++) {
		struct meeting m;
		char text[256];

		begin(&m, NULL, i % 2);
		assert_true(write(m.fds[1], texts[i / 2], strlen(texts[i / 2])) > 0);
		meet(&m);
		assert_int_equal(finish(&m, text), PEER_NOT_TLS);
	}
}

/* The one that dials with a wrong certificate has finished its handshake before it is refused. */
static void the_refused_side_is_told(void **state)
{
	static const struct {
		struct change change;
		int alert;
		const char *word;
	} told[] = {
		{ { .stranger = true }, SSL_AD_UNKNOWN_CA, "ca.crt" },
		{ { .to = -1 }, SSL_AD_CERTIFICATE_EXPIRED, "clocks" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
		SSL_CTX *theirs = make(&told[i].change);
		struct tls *dials, *answers;
		const char *detail;
		int fds[2], r = -EAGAIN;
		char octet;

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
		SSL_CTX_set_verify(theirs, SSL_VERIFY_NONE, NULL);
		assert_int_equal(tls_new(&dials, theirs, fds[0], true, ""), 0);
		assert_int_equal(tls_new(&answers, identity_context(two), fds[1], false, "one"), 0);
		for (int k = 0; k < 10; k++) {
			if (r)
				r = tls_handshake(dials);
			tls_handshake(answers);
		}
		assert_int_equal(r, 0);
		assert_int_equal(tls_read(dials, &octet, 1), -EPROTO);
		assert_int_equal(tls_reason(dials, &detail), PEER_THERE);
		printf("%s\n", detail);
		assert_non_null(strstr(detail, told[i].word));
		tls_free(dials);
		tls_free(answers);
		close(fds[0]);
		close(fds[1]);
		SSL_CTX_free(theirs);
	}
}

/* No ticket is given, so that nobody comes in by an earlier connection. */
static void nothing_is_resumed(void **state)
{
	SSL_CTX *theirs = make(&(struct change){});
	struct meeting m;
	char text[256], octet;

	(void)state;
	begin(&m, theirs, false);
	meet(&m);
	assert_true(m.theirs_done);
	assert_int_equal(tls_write(m.ours, "x", 1), 1);
	assert_int_equal(SSL_read(m.theirs, &octet, 1), 1); /* a ticket would have come before */
	assert_false(SSL_SESSION_is_resumable(SSL_get_session(m.theirs)));
	assert_int_equal(finish(&m, text), PEER_NONE);
	SSL_CTX_free(theirs);
}

static int setup(void **state)
{
	char path[PATH_MAX];
	bool replaced;

	return make_identities(state) || authority_issue(pki, "three", 10, &replaced, path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_certificate_both_ways),
		cmocka_unit_test(only_tls_1_3),
		cmocka_unit_test(no_certificate),
		cmocka_unit_test(what_is_no_tls),
		cmocka_unit_test(the_refused_side_is_told),
		cmocka_unit_test(nothing_is_resumed),
	};

	return cmocka_run_group_tests(tests, setup, drop_identities);
}
