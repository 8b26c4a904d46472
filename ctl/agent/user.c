// SPDX-License-Identifier: BSD-2-Clause
/* Whom the agent becomes, see rights.h. Accounts are looked up at the start only: that may wait. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agent/rights.h"

#define DEFAULT_USER "ferry"

int user_number(const char *text, uint32_t *n)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value >= UINT32_MAX) /* -1 is nobody */
		return -EINVAL;
	*n = (uint32_t)value;
	return 0;
}

static int find_user(const char *name, bool with_group, struct rights_user *u, char *error,
		     size_t size)
{
	bool numeric = !user_number(name, &u->uid);
	const struct passwd *pw = numeric ? getpwuid(u->uid) : getpwnam(name);

	if (!pw && !numeric) {
		snprintf(error, size,
			 "there is no user '%s' for the agent to become: make it "
			 "(useradd --system --user-group --no-create-home %s), or give "
			 "another, or root, with --user",
			 name, name);
		return -ENOENT;
	}
	if (!pw && !with_group) {
		snprintf(error, size,
			 "user %s has no account, and so no group: give one with "
			 "--user %s:GROUP",
			 name, name);
		return -ENOENT;
	}
	if (pw) {
		u->uid = pw->pw_uid;
		u->gid = pw->pw_gid;
	}
	return 0;
}

static int find_group(const char *name, struct rights_user *u, char *error, size_t size)
{
	const struct group *gr = user_number(name, &u->gid) ? getgrnam(name) : NULL;

	if (gr)
		u->gid = gr->gr_gid;
	else if (user_number(name, &u->gid)) {
		snprintf(error, size, "there is no group '%s': groupadd --system %s", name, name);
		return -ENOENT;
	}
	return 0;
}

int rights_user(const char *text, struct rights_user *u, char *error, size_t size)
{
	const char *colon = text ? strchr(text, ':') : NULL;
	char name[64];
	int r;

	*u = (struct rights_user){ geteuid(), getegid() };
	if (!text && u->uid)
		return 0;
	snprintf(name, sizeof(name), "%.*s", colon ? (int)(colon - text) : 63,
		 text ? text : DEFAULT_USER);
	if (!name[0] || (colon && !colon[1]) || (text && strlen(text) >= sizeof(name))) {
		snprintf(error, size, "--user %s: USER[:GROUP] is wanted", text);
		return -EINVAL;
	}
	r = find_user(name, colon, u, error, size);
	r = r || !colon ? r : find_group(colon + 1, u, error, size);
	if (r || !geteuid() || (u->uid == geteuid() && u->gid == getegid()))
		return r;
	snprintf(error, size,
		 "only root can become user %u, group %u: start as root, or as that "
		 "user and group",
		 u->uid, u->gid);
	return -EPERM;
}
