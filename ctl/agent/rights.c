// SPDX-License-Identifier: BSD-2-Clause
/*
 * Rights, see rights.h. Capability sets by libcap; what it has no call for, by prctl.
 *
 * Why a uid change can give nothing back afterwards: no CAP_SETUID is left; NO_SETUID_FIXUP keeps
 * the kernel from changing capabilities with uids, NOROOT keeps uid 0 from getting any by exec,
 * both locked (capabilities(7)); no_new_privs makes set-user-ID and file capabilities mean nothing.
 * Invariant: after rights_serve() has said 0, what it wanted is what the kernel said.
 */
#include <errno.h>
#include <grp.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "agent/rights.h"
#include "base/fault.h"
#include "base/util.h"

#define BIT(cap) (1ULL << (cap))
#define SECUREBITS                                                                                 \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                           \
	 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED)

/* NULL: the start's alone, and not missed where the start finds all made for it. */
static const struct right {
	cap_value_t cap;
	const char *name, *purpose;
} rights[] = {
#define R(cap, purpose)                                                                            \
	{                                                                                          \
		cap, #cap, purpose                                                                 \
	}
	R(CAP_NET_ADMIN, "to attach programs, add addresses and put sockets in repair"),
	R(CAP_NET_BIND_SERVICE, "to restore a socket with a local port below 1024"),
	R(CAP_BPF, "to make maps and load programs"),
	R(CAP_PERFMON, "to load programs that calculate with packet pointers"),
	R(CAP_CHOWN, NULL),        /* pins and socket become the user's */
	R(CAP_DAC_OVERRIDE, NULL), /* pins, socket, configuration of whoever they are */
	R(CAP_FOWNER, NULL),       /* an earlier agent's socket in a directory like /tmp */
	R(CAP_SETGID, NULL),
	R(CAP_SETUID, NULL),
	R(CAP_SETPCAP, NULL),   /* bounding set, securebits */
	R(CAP_SYS_ADMIN, NULL), /* the name of a program that owns a device */
#undef R
};

uint64_t rights_mask(enum rights_phase phase, uint64_t known)
{
	uint64_t mask = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(rights); i++)
		if (phase == RIGHTS_START || rights[i].purpose)
			mask |= BIT(rights[i].cap);
	return mask & known;
}

const char *rights_purpose(unsigned int cap, const char **name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(rights); i++) {
		if (rights[i].cap != (cap_value_t)cap)
			continue;
		*name = rights[i].name;
		return rights[i].purpose;
	}
	return NULL;
}

static uint64_t known(void)
{
	uint64_t mask = 0;

	for (cap_value_t cap = 0; cap < 64 && CAP_IS_SUPPORTED(cap); cap++)
		mask |= BIT(cap);
	return mask;
}

static uint64_t set_of(cap_t caps, cap_flag_t flag)
{
	cap_flag_value_t value;
	uint64_t mask = 0;

	for (cap_value_t cap = 0; cap < cap_max_bits(); cap++)
		if (!cap_get_flag(caps, cap, flag, &value) && value == CAP_SET)
			mask |= BIT(cap);
	return mask;
}

static uint64_t bounding(void)
{
	uint64_t mask = 0;

	for (cap_value_t cap = 0; cap < cap_max_bits(); cap++)
		if (cap_get_bound(cap) == 1)
			mask |= BIT(cap);
	return mask;
}

static uint64_t ambient(void)
{
	uint64_t mask = 0;

	for (cap_value_t cap = 0; cap < cap_max_bits(); cap++)
		if (cap_get_ambient(cap) == 1)
			mask |= BIT(cap);
	return mask;
}

struct sets {
	uint64_t permitted, effective, inheritable;
};

static int get_sets(struct sets *s)
{
	cap_t caps = cap_get_proc();

	if (!caps)
		return -errno;
	s->permitted = set_of(caps, CAP_PERMITTED);
	s->effective = set_of(caps, CAP_EFFECTIVE);
	s->inheritable = set_of(caps, CAP_INHERITABLE);
	cap_free(caps);
	return 0;
}

static int put_sets(const struct sets *s)
{
	cap_t caps = cap_init();
	int r = caps ? 0 : -errno;

	for (cap_value_t cap = 0; !r && cap < cap_max_bits(); cap++)
		if ((s->permitted & BIT(cap) &&
		     cap_set_flag(caps, CAP_PERMITTED, 1, &cap, CAP_SET)) ||
		    (s->effective & BIT(cap) &&
		     cap_set_flag(caps, CAP_EFFECTIVE, 1, &cap, CAP_SET)) ||
		    (s->inheritable & BIT(cap) &&
		     cap_set_flag(caps, CAP_INHERITABLE, 1, &cap, CAP_SET)))
			r = -errno;
	if (!r && cap_set_proc(caps))
		r = -errno;
	if (caps)
		cap_free(caps);
	return r;
}

/* Needs CAP_SETPCAP. */
static int cut_bounding(uint64_t mask)
{
	uint64_t beyond = bounding() & ~mask;

	for (cap_value_t cap = 0; cap < cap_max_bits(); cap++)
		if (beyond & BIT(cap) && cap_drop_bound(cap))
			return -errno;
	return 0;
}

int rights_start(char *error, size_t size)
{
	uint64_t want = rights_mask(RIGHTS_START, known());
	uint64_t serve = rights_mask(RIGHTS_SERVE, known()), lack;
	struct sets s;
	int r = get_sets(&s);

	lack = r || fault(FAULT_NO_RIGHTS_CHECK) ? 0 : serve & ~s.permitted;
	for (unsigned int cap = 0; lack && cap < 64; cap++) {
		const char *name = "",
			   *purpose = lack & BIT(cap) ? rights_purpose(cap, &name) : NULL;

		if (!purpose)
			continue;
		snprintf(error, size,
			 "%s is missing, which is needed %s: start as root, or with it "
			 "as an ambient capability (AmbientCapabilities= of a unit)",
			 name, purpose);
		return -EPERM;
	}
	if (!r && s.permitted & BIT(CAP_SETPCAP))
		r = cut_bounding(want);
	s.permitted &= want;
	s.effective = s.permitted;
	s.inheritable &= want;
	r = r ? r : put_sets(&s);
	if (r)
		snprintf(error, size, "cannot limit the rights of the start: %s", strerror(-r));
	return r;
}

/* The steps of rights_serve(), in their order; each needs what a later one takes. */
static int become(const struct rights_user *u, const char **step)
{
	*step = "groups";
	if (setgroups(0, NULL))
		return -errno;
	*step = "group";
	if (setresgid(u->gid, u->gid, u->gid))
		return -errno;
	*step = "user";
	return setresuid(u->uid, u->uid, u->uid) ? -errno : 0;
}

static int give_up(const struct rights_user *u, uint64_t mask, bool root, bool setpcap,
		   const char **step)
{
	struct sets s = { mask, mask, mask };
	int r;

	*step = "bounding set";
	r = setpcap ? cut_bounding(mask) : 0;
	if (r)
		return r;
	*step = "securebits";
	if (setpcap && prctl(PR_SET_SECUREBITS, SECUREBITS))
		return -errno;
	r = root ? become(u, step) : 0;
	if (r)
		return r;
	*step = "capabilities";
	r = fault(FAULT_KEEP_RIGHTS) ? 0 : put_sets(&s);
	for (cap_value_t cap = 0; !r && cap < cap_max_bits(); cap++)
		if (mask & BIT(cap) && !fault(FAULT_KEEP_RIGHTS) && cap_set_ambient(cap, CAP_SET))
			r = -errno;
	*step = "no_new_privs";
	if (!r && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		r = -errno;
	/* a change of uid has set it as fs.suid_dumpable says */
	return r ? r : prctl(PR_SET_DUMPABLE, 0) ? -errno : 0;
}

/* What is not so, with what it is; NULL: all is as it should be. */
static const char *differs(const struct rights_user *u, uint64_t mask, bool root, bool setpcap,
			   uint64_t *is)
{
	uid_t uid[3] = { (uid_t)-1, (uid_t)-1, (uid_t)-1 };
	gid_t gid[3] = { (gid_t)-1, (gid_t)-1, (gid_t)-1 };
	struct sets s = {};

	getresuid(&uid[0], &uid[1], &uid[2]);
	getresgid(&gid[0], &gid[1], &gid[2]);
	get_sets(&s);
	for (int i = 0; i < 3; i++) {
		if ((*is = uid[i]) != u->uid)
			return "uid";
		if ((*is = gid[i]) != u->gid)
			return "gid";
	}
	if (root && (*is = (uint64_t)getgroups(0, NULL)))
		return "number of groups";
	if ((*is = s.permitted) != mask)
		return "permitted set";
	if ((*is = s.effective) != mask)
		return "effective set";
	if ((*is = s.inheritable) != mask)
		return "inheritable set";
	if ((*is = ambient()) != mask)
		return "ambient set";
	if (setpcap && (*is = bounding()) != mask)
		return "bounding set";
	if (setpcap && (*is = (uint64_t)prctl(PR_GET_SECUREBITS)) != SECUREBITS)
		return "set of securebits";
	if ((*is = (uint64_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) != 1)
		return "no_new_privs";
	return (*is = (uint64_t)prctl(PR_GET_DUMPABLE)) ? "dumpable" : NULL;
}

int rights_serve(const struct rights_user *u, char *error, size_t size)
{
	uint64_t mask = rights_mask(RIGHTS_SERVE, known()), is = 0;
	const char *step = "capabilities", *wrong;
	bool root = !geteuid(), setpcap;
	struct sets s;
	int r = get_sets(&s);

	setpcap = !r && s.effective & BIT(CAP_SETPCAP);
	if (fault(FAULT_NO_RIGHTS_CHECK))
		mask &= s.permitted;
	r = r ? r : give_up(u, mask, root, setpcap, &step);
	if (r) {
		snprintf(error, size,
			 "cannot give up rights (%s): %s; root needs CAP_SETUID, "
			 "CAP_SETGID and CAP_SETPCAP for it",
			 step, strerror(-r));
		return r;
	}
	wrong = differs(u, mask, root, setpcap, &is);
	if (!wrong)
		return 0;
	snprintf(error, size,
		 "rights were not given up: the %s is %llx, which is not user %u, group "
		 "%u and capabilities %llx; what started the agent may forbid it",
		 wrong, (unsigned long long)is, u->uid, u->gid, (unsigned long long)mask);
	return -EPERM;
}
