// SPDX-License-Identifier: BSD-2-Clause
/*
 * TLS on a socket that never blocks, see tls.h. OpenSSL decides; what is added is whose certificate
 * it may be, and why something was refused: from the verification where it was ours, from the alert
 * where it was the other side's.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include "peer/tls.h"
#include "pki/cert.h"

#define CHAIN_MAX 16384 /* octets of what a stranger may show */

struct tls {
	SSL *ssl;
	char want[NODE_NAME], node[NODE_NAME];
	uint32_t wants;
	bool done, broken;
	enum peer_reason reason;
	char detail[256];
};

static int note(struct tls *t, enum peer_reason reason, const char *format, ...) _printf_(3, 4);

/* The first reason is the cause; what comes after it follows from it. */
static int note(struct tls *t, enum peer_reason reason, const char *format, ...)
{
	va_list args;

	if (t->reason)
		return -EPROTO;
	t->reason = reason;
	va_start(args, format);
	vsnprintf(t->detail, sizeof(t->detail), format, args);
	va_end(args);
	for (char *p = t->detail; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?'; /* a peer's words go to the log */
	return -EPROTO;
}

static const char *whose(int depth)
{
	return depth ? "the authority's" : "its";
}

static void note_dates(struct tls *t, const X509 *cert, int depth, bool ended)
{
	char date[TIME_TEXT], clock[TIME_TEXT];
	int64_t from, to;

	cert_dates(cert, &from, &to);
	note(t, ended ? PEER_EXPIRED : PEER_NOT_YET,
	     "%s certificate %s %s, our clock says %s: compare the clocks, else issue it anew",
	     whose(depth), ended ? "ended" : "begins", time_text(ended ? to : from, date),
	     time_text(time(NULL), clock));
}

static void note_verification(struct tls *t, int error, int depth, const X509 *cert)
{
	switch (error) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
	case X509_V_ERR_CERT_NOT_YET_VALID:
		note_dates(t, cert, depth, error == X509_V_ERR_CERT_HAS_EXPIRED);
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		note(t, PEER_UNKNOWN_CA, "%s; are both nodes' ca.crt the same?",
		     X509_verify_cert_error_string(error));
		break;
	default:
		note(t, PEER_CERTIFICATE, "%s", X509_verify_cert_error_string(error));
	}
}

/* Called for each certificate of the chain, the node's last, and for each error. */
static int on_certificate(int good, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	const X509 *cert = X509_STORE_CTX_get_current_cert(store);
	int depth = X509_STORE_CTX_get_error_depth(store);
	struct tls *t = SSL_get_app_data(ssl);

	if (!good) {
		note_verification(t, X509_STORE_CTX_get_error(store), depth, cert);
		return 0;
	}
	if (depth)
		return 1;
	cert_node(cert, t->node);
	if (!strcmp(t->node, t->want))
		return 1;
	if (t->node[0])
		note(t, PEER_WRONG_NAME, "it is %s's, %s's is wanted", t->node, t->want);
	else
		note(t, PEER_CERTIFICATE, "it names no node: make it with 'ferry pki issue'");
	X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

SSL_CTX *tls_context(X509 *ca, X509 *cert, EVP_PKEY *key)
{
	SSL_CTX *c = SSL_CTX_new(TLS_method());

	if (!c)
		return NULL;
	SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
				       SSL_OP_IGNORE_UNEXPECTED_EOF /* frames tell a cut */);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_certificate);
	SSL_CTX_set_verify_depth(c, 1);
	SSL_CTX_set_max_cert_list(c, CHAIN_MAX);
	if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) &&
	    SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(c, 0) &&
	    X509_STORE_add_cert(SSL_CTX_get_cert_store(c), ca) &&
	    SSL_CTX_use_certificate(c, cert) && SSL_CTX_use_PrivateKey(c, key))
		return c;
	ERR_clear_error();
	SSL_CTX_free(c);
	return NULL;
}

int tls_new(struct tls **ret, SSL_CTX *context, int fd, bool dialed, const char *node)
{
	struct tls *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ssl = SSL_new(context);
	if (!t->ssl || !SSL_set_fd(t->ssl, fd)) {
		tls_free(t);
		ERR_clear_error();
		return -ENOMEM;
	}
	snprintf(t->want, sizeof(t->want), "%s", node);
	t->wants = EPOLLIN | EPOLLOUT;
	SSL_set_app_data(t->ssl, t);
	if (dialed)
		SSL_set_connect_state(t->ssl);
	else
		SSL_set_accept_state(t->ssl);
	*ret = t;
	return 0;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	if (t->done && !t->broken)
		SSL_shutdown(t->ssl); /* as far as the socket takes it now */
	ERR_clear_error();
	SSL_free(t->ssl);
	free(t);
}

/* An alert of the other side: it refused us, and says why as well as TLS can. */
static int note_alert(struct tls *t, int alert)
{
	static const struct {
		int alert;
		const char *text;
	} texts[] = {
		{ SSL_AD_UNKNOWN_CA, "it does not know the authority of our certificate: are both "
				     "nodes' ca.crt the same?" },
		{ SSL_AD_CERTIFICATE_EXPIRED,
		  "to it our certificate has ended: compare the clocks, "
		  "else 'ferry pki issue'" },
		{ SSL_AD_BAD_CERTIFICATE, "it does not take our certificate; its log says why" },
		{ TLS13_AD_CERTIFICATE_REQUIRED, "it wants a certificate and saw none" },
	};
	const char *text = "its log says why";

	if (alert == SSL_AD_PROTOCOL_VERSION)
		return note(t, PEER_TLS_VERSION, "by its alert");
	for (unsigned int i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].alert == alert)
			text = texts[i].text;
	return note(t, PEER_THERE, "alert %d (%s): %s", alert, SSL_alert_desc_string_long(alert),
		    text);
}

static int note_error(struct tls *t)
{
	unsigned long error = ERR_peek_error();
	int why = ERR_GET_REASON(error);

	if (ERR_GET_LIB(error) == ERR_LIB_SSL && why > SSL_AD_REASON_OFFSET)
		return note_alert(t, why - SSL_AD_REASON_OFFSET);
	switch (t->done || ERR_GET_LIB(error) != ERR_LIB_SSL ? 0 : why) {
	case SSL_R_HTTP_REQUEST:
	case SSL_R_HTTPS_PROXY_REQUEST:
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_WRONG_SSL_VERSION:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_RECORD_LENGTH_MISMATCH:
		return note(t, PEER_NOT_TLS, "%s", "is it ferryd?");
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_UNKNOWN_PROTOCOL:
	case SSL_R_VERSION_TOO_LOW:
		return note(t, PEER_TLS_VERSION, "%s", "");
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return note(t, PEER_NO_CERTIFICATE, "%s", "");
	default:
		return note(t, PEER_TLS, "%s", ERR_reason_error_string(error) ?: "unknown error");
	}
}

/* What a call that returned r (not positive) means. 0: the end. */
static int outcome(struct tls *t, int r)
{
	int saved = errno;

	switch (SSL_get_error(t->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		t->wants = EPOLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		t->wants = EPOLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		t->broken = true;
		return saved ? -saved : -ECONNRESET;
	default:
		t->broken = true;
		return note_error(t);
	}
}

static int begin(struct tls *t)
{
	ERR_clear_error();
	errno = 0;
	return t->broken ? t->reason ? -EPROTO : -ECONNRESET : 0;
}

int tls_handshake(struct tls *t)
{
	int r = begin(t);

	if (r)
		return r;
	r = SSL_do_handshake(t->ssl);
	if (r != 1) {
		r = outcome(t, r);
		return r ? r : note(t, PEER_CUT, "in the TLS handshake");
	}
	t->done = true;
	/* never so, as it is set up; but on this rests who may order a move */
	return strcmp(t->node, t->want) ? note(t, PEER_NO_CERTIFICATE, "%s", "") : 0;
}

ssize_t tls_read(struct tls *t, void *to, size_t size)
{
	size_t n = 0;
	int r = begin(t);

	if (r)
		return r;
	r = SSL_read_ex(t->ssl, to, size, &n);
	return r == 1 ? (ssize_t)n : outcome(t, r);
}

ssize_t tls_write(struct tls *t, const void *from, size_t size)
{
	size_t n = 0;
	int r = begin(t);

	if (r)
		return r;
	r = SSL_write_ex(t->ssl, from, size, &n);
	if (r == 1)
		return (ssize_t)n;
	r = outcome(t, r);
	return r ? r : -EPIPE;
}

uint32_t tls_wants(const struct tls *t)
{
	return t->wants;
}

const char *tls_node(const struct tls *t)
{
	return t->node;
}

enum peer_reason tls_reason(const struct tls *t, const char **detail)
{
	*detail = t->detail;
	return t->reason;
}
