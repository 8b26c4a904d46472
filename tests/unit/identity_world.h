/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An authority and two nodes' certificates, made once for a test program by the code under
 * `ferry pki`, in a directory that is taken away at the end.
 */
#ifndef IDENTITY_WORLD_H
#define IDENTITY_WORLD_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "base/util.h"
#include "peer/identity.h"
#include "pki/authority.h"

static char pki[] = "/tmp/ferry-test-pki-XXXXXX";
static struct identity *one, *two;

static int make_identities(void **state)
{
	char path[PATH_MAX], error[512];
	bool replaced;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_non_null(mkdtemp(pki));
	assert_int_equal(authority_make(pki, 10, path), 0);
	assert_int_equal(authority_issue(pki, "one", 10, &replaced, path), 0);
	assert_int_equal(authority_issue(pki, "two", 10, &replaced, path), 0);
	assert_int_equal(identity_load(&one, pki, "one", 0, error, sizeof(error)), 0);
	assert_int_equal(identity_load(&two, pki, "two", 0, error, sizeof(error)), 0);
	return 0;
}

static int drop_identities(void **state)
{
	static const char *const names[] = { "ca", "one", "two", "three", "away" };
	char path[PATH_MAX];

	(void)state;
	identity_free(one);
	identity_free(two);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(names); i++) {
		pki_path(path, pki, names[i / 2], i % 2 ? "crt" : "key");
		unlink(path);
	}
	return rmdir(pki);
}

#endif
