// SPDX-License-Identifier: BSD-2-Clause
/*
 * The pin directory (ctl/dataplane/pins.c) by the kernel, in a mount namespace of the test's own:
 * what holds its descriptor needs no path, one process holds the lock, and what is given to another
 * user is the pins and nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/util.h"
#include "dataplane/dataplane.h"

static const struct dataplane_settings small = {
	.name = "one",
	.node = 1,
	.buckets4 = 64,
	.buckets6 = 64,
	.stash = 16,
	.units = 16,
};

static int own_mounts(void **state)
{
	(void)state;
	return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int mount_bpf(void **state)
{
	(void)state;
	return mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700");
}

static int unmount_bpf(void **state)
{
	(void)state;
	return umount2("/sys/fs/bpf", MNT_DETACH);
}

/* An open and locked directory, and then no way to it by a path. */
static int open_and_hide(void)
{
	int fd;

	assert_int_equal(mkdir(PIN_ROOT, 0711), 0);
	assert_int_equal(mkdir(PIN_ROOT "/one", 0700), 0);
	fd = open(PIN_ROOT "/one", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(mount("none", "/sys/fs/bpf", "tmpfs", 0, NULL), 0);
	return fd;
}

static void a_descriptor_needs_no_path(void **state)
{
	struct dataplane_settings s = small;
	uint64_t seed;
	struct dataplane d;
	int again;

	(void)state;
	s.pins = open_and_hide();
	again = dup(s.pins); /* for the one that follows */
	if (dataplane_open(&d, &s))
		fail_msg("%s", dataplane_error());
	seed = d.control.seed;
	assert_int_equal(faccessat(d.lock, "words", F_OK, 0), 0);
	dataplane_close(&d);
	s.pins = again;
	if (dataplane_open(&d, &s))
		fail_msg("%s", dataplane_error());
	assert_int_equal(d.control.seed, seed);
	dataplane_close(&d);
	/* without it the path is asked, where there is nothing */
	assert_int_not_equal(dataplane_open(&d, &small), 0);
	assert_non_null(strstr(dataplane_error(), "not a bpf file system"));
	umount2("/sys/fs/bpf", MNT_DETACH);
}

static void a_descriptor_of_another_file_system(void **state)
{
	struct dataplane_settings s = small;
	struct dataplane d;

	(void)state;
	s.pins = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(dataplane_open(&d, &s), -EINVAL);
	assert_non_null(strstr(dataplane_error(), "no directory of a bpf file system"));
}

static void one_holds_the_lock(void **state)
{
	struct dataplane d, other;

	(void)state;
	if (dataplane_open(&d, &small))
		fail_msg("%s", dataplane_error());
	assert_int_not_equal(dataplane_open(&other, &small), 0);
	assert_non_null(strstr(dataplane_error(), "is locked"));
	dataplane_close(&d);
	assert_int_equal(dataplane_open(&d, &small), 0);
	dataplane_close(&d);
}

static uid_t owner(int dir, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(dir, name, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW), 0);
	return st.st_uid;
}

static void pins_are_given_away_and_nothing_else(void **state)
{
	struct dataplane d;

	(void)state;
	if (dataplane_open(&d, &small))
		fail_msg("%s", dataplane_error());
	assert_int_equal(dataplane_own(&d, 64899, 64898), 0);
	assert_int_equal(owner(d.lock, ""), 64899);
	assert_int_equal(owner(d.lock, "words"), 64899);
	assert_int_equal(owner(d.lock, "control"), 64899);
	/* a second name of something, which whoever owns the directory may have put there */
	assert_int_equal(linkat(d.lock, "words", d.lock, "other", 0), 0);
	assert_int_equal(dataplane_own(&d, 0, 0), -EPERM);
	assert_int_equal(owner(d.lock, "words"), 64899);
	assert_int_equal(unlinkat(d.lock, "other", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", d.lock, "other"), 0);
	assert_int_equal(dataplane_own(&d, 64899, 64898), -EPERM);
	assert_int_equal(owner(AT_FDCWD, "/etc/passwd"), 0);
	assert_int_equal(unlinkat(d.lock, "other", 0), 0);
	assert_int_equal(dataplane_own(&d, 0, 0), 0);
	assert_int_equal(owner(d.lock, "words"), 0);
	dataplane_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_descriptor_needs_no_path, mount_bpf, unmount_bpf),
		cmocka_unit_test_setup_teardown(a_descriptor_of_another_file_system, mount_bpf,
						unmount_bpf),
		cmocka_unit_test_setup_teardown(one_holds_the_lock, mount_bpf, unmount_bpf),
		cmocka_unit_test_setup_teardown(pins_are_given_away_and_nothing_else, mount_bpf,
						unmount_bpf),
	};

	return cmocka_run_group_tests(tests, own_mounts, NULL);
}
