// SPDX-License-Identifier: BSD-2-Clause
/*
 * ferry pki init|issue|show: the fleet's certificates, in one directory. Needs no agent, no pins
 * and no right but that to the directory. What the certificates are: ctl/pki.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "cli/cli.h"
#include "pki/authority.h"

#define SOON_DAYS 7
#define DAY_S 86400

struct arguments {
	const char *dir, *node;
	int days;
};

/* [NODE] [--dir D] [--days N]; days_max 0: no --days. */
static int parse(struct cli *c, int argc, char **argv, int days_max, struct arguments *a)
{
	for (int i = 0; i < argc; i++) {
		bool more = i + 1 < argc;

		if (more && !strcmp(argv[i], "--dir")) {
			a->dir = argv[++i];
		} else if (more && days_max && !strcmp(argv[i], "--days")) {
			char *end, *text = argv[++i];
			long n = strtol(text, &end, 10);

			if (!*text || *end || n < 1 || n > days_max)
				return cli_error(
					c, EXIT_USAGE, "usage",
					"--days: a number from 1 to %d is wanted, not '%s'",
					days_max, text);
			a->days = (int)n;
		} else if (!a->node && argv[i][0] != '-') {
			a->node = argv[i];
		} else {
			return cli_error(c, EXIT_USAGE, "usage", "'%s' is not understood", argv[i]);
		}
	}
	if (a->node && !name_valid(a->node))
		return cli_error(c, EXIT_USAGE, "usage", "'%s' is no node's name", a->node);
	return EXIT_OK;
}

static json_t *describe(const char *path, const X509 *cert, const char **state)
{
	char node[NODE_NAME], from_text[TIME_TEXT], to_text[TIME_TEXT], print[FINGERPRINT_TEXT];
	int64_t from, to, now = time(NULL);
	char subject[256] = "";

	cert_node(cert, node);
	cert_dates(cert, &from, &to);
	X509_NAME_oneline(X509_get_subject_name(cert), subject, sizeof(subject));
	*state = to < now                              ? "expired" :
		 from > now                            ? "not-yet-valid" :
		 to - now < (int64_t)SOON_DAYS * DAY_S ? "expiring" :
							 "valid";
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:s}", "node", node, "state", *state,
			 "file", path, "subject", subject, "from", time_text(from, from_text), "to",
			 time_text(to, to_text), "days_left",
			 (json_int_t)((to - now - (to < now ? DAY_S - 1 : 0)) / DAY_S),
			 "fingerprint", cert_fingerprint(cert, print));
}

static int unreadable(struct cli *c, const char *path, int r)
{
	return cli_error(c, r == -ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED, "no-certificate", "%s: %s",
			 path,
			 r == -ENOENT  ? "there is none: ferry pki init, ferry pki issue NODE" :
			 r == -EBADMSG ? "no certificate in PEM" :
					 strerror(-r));
}

/* Prints one certificate, which has just been made. */
static int print_one(struct cli *c, const char *dir, const char *name, bool replaced)
{
	_cleanup_cert_ X509 *cert = NULL;
	char path[PATH_MAX];
	const char *state;
	int r = pki_path(path, dir, name, "crt");
	json_t *o;

	r = r ? r : cert_read(path, &cert);
	if (r)
		return unreadable(c, path, r);
	o = describe(path, cert, &state);
	json_object_set_new(o, "replaced", json_boolean(replaced));
	return cli_print(c, o, NULL, NULL, 0);
}

int cmd_pki_init(struct cli *c, int argc, char **argv)
{
	struct arguments a = { .dir = PKI_DIR, .days = CA_DAYS };
	char path[PATH_MAX] = "";
	int r = parse(c, argc, argv, CA_DAYS_MAX, &a);

	if (r)
		return r;
	if (a.node)
		return cli_error(c, EXIT_USAGE, "usage", "'%s' is not understood", a.node);
	r = authority_make(a.dir, a.days, path);
	if (r == -EEXIST)
		return cli_error(c, EXIT_FAILED, "ca-exists",
				 "%s is there: an authority is not overwritten; move it away, or "
				 "use another --dir",
				 path);
	if (r)
		return cli_error(c, EXIT_FAILED, "cannot-write", "%s: %s", path, strerror(-r));
	return print_one(c, a.dir, CA_NAME, false);
}

int cmd_pki_issue(struct cli *c, int argc, char **argv)
{
	struct arguments a = { .dir = PKI_DIR, .days = NODE_DAYS };
	char path[PATH_MAX] = "";
	bool replaced;
	int r = parse(c, argc, argv, NODE_DAYS_MAX, &a);

	if (r)
		return r;
	if (!a.node || !strcmp(a.node, CA_NAME))
		return cli_error(c, EXIT_USAGE, "usage",
				 a.node ? "the name ca is the authority's" : "a node is wanted");
	r = authority_issue(a.dir, a.node, a.days, &replaced, path);
	switch (-r) {
	case 0:
		return print_one(c, a.dir, a.node, replaced);
	case ENOENT:
		return cli_error(c, EXIT_NOT_FOUND, "no-ca",
				 "%s is not there: ferry pki init makes it; certificates are "
				 "issued where ca.key is",
				 path);
	case EPERM:
		return cli_error(c, EXIT_FAILED, "bad-ca",
				 "%s: others may read it: chmod 600, and own it", path);
	case EBADMSG:
		return cli_error(c, EXIT_FAILED, "bad-ca", "%s: not what it should be in PEM",
				 path);
	case ENOKEY:
		return cli_error(c, EXIT_FAILED, "bad-ca", "%s is not the key of ca.crt", path);
	case EKEYEXPIRED:
		return cli_error(c, EXIT_FAILED, "bad-ca",
				 "%s/ca.crt has expired: move the directory away and make "
				 "another: ferry pki init",
				 a.dir);
	default:
		return cli_error(c, EXIT_FAILED, "cannot-write", "%s: %s", path, strerror(-r));
	}
}

static int is_certificate(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 4 && !strcmp(e->d_name + n - 4, ".crt");
}

/* Adds one to the array; EXIT_DEGRADED where it has ended or will soon. */
static int show(struct cli *c, const char *path, json_t *array)
{
	_cleanup_cert_ X509 *cert = NULL;
	const char *state;
	int r = cert_read(path, &cert);

	if (r)
		return unreadable(c, path, r);
	json_array_append_new(array, describe(path, cert, &state));
	return strcmp(state, "valid") ? EXIT_DEGRADED : EXIT_OK;
}

static int show_all(struct cli *c, const char *dir, json_t *array)
{
	struct dirent **list = NULL;
	int n = scandir(dir, &list, is_certificate, alphasort), code = EXIT_OK;
	char path[PATH_MAX];

	for (int i = 0; i < n; i++) {
		int r = EXIT_OK;

		if (code == EXIT_OK || code == EXIT_DEGRADED) {
			snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
			r = show(c, path, array);
		}
		code = r ? r : code;
		free(list[i]);
	}
	free(list);
	if (n <= 0) {
		snprintf(path, sizeof(path), "%s/*.crt", dir);
		return unreadable(c, path, n ? -errno : -ENOENT);
	}
	return code;
}

int cmd_pki_show(struct cli *c, int argc, char **argv)
{
	static const struct column columns[] = {
		{ "node", "NODE" },           { "state", "STATE" }, { "days_left", "DAYS" },
		{ "from", "FROM" },           { "to", "TO" },       { "subject", "SUBJECT" },
		{ "fingerprint", "SHA-256" },
	};
	struct arguments a = { .dir = PKI_DIR };
	json_t *array = json_array();
	char path[PATH_MAX];
	int r = parse(c, argc, argv, 0, &a);

	if (!r && a.node) {
		r = pki_path(path, a.dir, a.node, "crt");
		r = r ? unreadable(c, a.dir, r) : show(c, path, array);
	} else if (!r) {
		r = show_all(c, a.dir, array);
	}
	if (r && r != EXIT_DEGRADED) {
		json_decref(array);
		return r;
	}
	cli_print(c, json_pack("{s:s, s:o}", "dir", a.dir, "certificates", array), "certificates",
		  columns, ARRAY_SIZE(columns));
	return r;
}
