// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whom the agent becomes, and the masks of its phases, as values (ctl/agent/rights.h); and what it
 * says of a user or a right that is not there. That the kernel agrees is selftests/agent_rights.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "agent/rights.h"
#include "base/util.h"

#define ALL UINT64_MAX
#define BIT(cap) (1ULL << (cap))

static const struct {
	const char *text;
	int result;
	uid_t uid;
	gid_t gid;
	const char *says;
} users[] = {
	{ "root", 0, 0, 0, "" },
	{ "0", 0, 0, 0, "" },
	{ "root:root", 0, 0, 0, "" },
	{ "64899:64899", 0, 64899, 64899, "" },
	{ "64899:root", 0, 64899, 0, "" },
	{ "root:64899", 0, 0, 64899, "" },
	{ "4294967294:1", 0, 4294967294, 1, "" },
	{ "64899", -ENOENT, 0, 0, "--user 64899:GROUP" },
	{ "no-such-user", -ENOENT, 0, 0, "useradd --system" },
	{ "no-such-user:root", -ENOENT, 0, 0, "useradd --system" },
	{ "root:no-such-group", -ENOENT, 0, 0, "groupadd --system no-such-group" },
	{ "", -EINVAL, 0, 0, "USER[:GROUP]" },
	{ ":", -EINVAL, 0, 0, "USER[:GROUP]" },
	{ "root:", -EINVAL, 0, 0, "USER[:GROUP]" },
	{ ":root", -EINVAL, 0, 0, "USER[:GROUP]" },
	{ "-1", -ENOENT, 0, 0, "no user '-1'" },
	{ "4294967295:1", -ENOENT, 0, 0, "no user" }, /* to the kernel: no change */
	{ "1x:1", -ENOENT, 0, 0, "no user" },
	{ "root:4294967295", -ENOENT, 0, 0, "no group" },
	{ "0123456789012345678901234567890123456789012345678901234567890123:1", -EINVAL, 0, 0,
	  "USER[:GROUP]" },
};

static void users_as_root(void **state)
{
	(void)state;
	assert_int_equal(geteuid(), 0); /* it may become anybody */
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		struct rights_user u;
		char error[512] = "";
		int r = rights_user(users[i].text, &u, error, sizeof(error));

		printf("'%s': %d %s\n", users[i].text, r, error);
		assert_int_equal(r, users[i].result);
		if (r && !strstr(error, users[i].says))
			fail_msg("'%s' does not say '%s'", error, users[i].says);
		if (r)
			continue;
		assert_int_equal(u.uid, users[i].uid);
		assert_int_equal(u.gid, users[i].gid);
	}
}

/* 0, or the number of the line that is not so. */
static int as_user(void)
{
	struct rights_user u;
	char error[512] = "";

	if (setresgid(64899, 64899, 64899) || setresuid(64899, 64899, 64899))
		return __LINE__ % 256;
	if (rights_user(NULL, &u, error, sizeof(error)) || u.uid != 64899 || u.gid != 64899)
		return __LINE__ % 256;
	if (rights_user("64899:64899", &u, error, sizeof(error)))
		return __LINE__ % 256;
	if (rights_user("root", &u, error, sizeof(error)) != -EPERM || !strstr(error, "only root"))
		return __LINE__ % 256;
	if (rights_user("64899:0", &u, error, sizeof(error)) != -EPERM)
		return __LINE__ % 256;
	if (rights_start(error, sizeof(error)) != -EPERM || !strstr(error, "CAP_") ||
	    !strstr(error, "is missing"))
		return __LINE__ % 256;
	return 0;
}

/* Who is not root stays who it is, and hears which right it lacks. */
static void users_as_another(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid)
		_exit(as_user());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void masks(void **state)
{
	const uint64_t serve = BIT(CAP_NET_ADMIN) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_BPF) |
			       BIT(CAP_PERFMON);
	const uint64_t start = serve | BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) |
			       BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETPCAP) |
			       BIT(CAP_SYS_ADMIN);
	const uint64_t old = BIT(CAP_PERFMON) - 1; /* a kernel before 5.8 */

	(void)state;
	assert_int_equal(rights_mask(RIGHTS_SERVE, ALL), serve);
	assert_int_equal(rights_mask(RIGHTS_START, ALL), start);
	assert_int_equal(rights_mask(RIGHTS_SERVE, old),
			 BIT(CAP_NET_ADMIN) | BIT(CAP_NET_BIND_SERVICE));
	assert_int_equal(rights_mask(RIGHTS_START, old), start & old);
	assert_int_equal(rights_mask(RIGHTS_START, 0), 0);
}

/* A right of serving says what it is for; the start's own do not. */
static void purposes(void **state)
{
	uint64_t serve = rights_mask(RIGHTS_SERVE, ALL);

	(void)state;
	for (unsigned int cap = 0; cap < 64; cap++) {
		const char *name = NULL, *purpose = rights_purpose(cap, &name);

		assert_int_equal(purpose != NULL, serve >> cap & 1);
		if (purpose)
			assert_int_equal(strncmp(name, "CAP_", 4), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_as_root),
		cmocka_unit_test(users_as_another),
		cmocka_unit_test(masks),
		cmocka_unit_test(purposes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
