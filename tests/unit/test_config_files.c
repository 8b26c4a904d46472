// SPDX-License-Identifier: BSD-2-Clause
/*
 * The files of the configuration (ctl/agent/config_read.c) and its check: drop-ins and their order,
 * what is no file or no text, and that every error is told at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "agent/config.h"
#include "base/util.h"

#define NODE "[node a]\nnumber = 1\naddress = 192.0.2.1\ninterfaces = eth0\n"

static char dir[] = "/tmp/ferry-test-files-XXXXXX";
static char error[768];

static const char *path_of(const char *name)
{
	static char paths[4][128];
	static unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void put_octets(const char *name, const char *text, size_t size)
{
	FILE *f = fopen(path_of(name), "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text)
{
	put_octets(name, text, strlen(text));
}

static int load(struct config *c)
{
	error[0] = 0;
	return config_load(c, path_of("ferry.conf"), "a", error, sizeof(error));
}

static void refused(int want, const char *says)
{
	struct config c;
	int r = load(&c);

	if (r != want || !strstr(error, says))
		fail_msg("%d '%s', not %d '...%s'", r, error, want, says);
}

static void taken(void)
{
	struct config c;

	if (load(&c))
		fail_msg("%s", error);
	config_free(&c);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type;
	return ftw->level ? remove(path) : 0;
}

/* Each test begins with a good file and an empty FILE.d. */
static int fresh(void **state)
{
	(void)state;
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	put("ferry.conf", "[fleet]\npacket = 1400\n" NODE);
	return mkdir(path_of("ferry.conf.d"), 0755);
}

static void drop_ins_come_in_the_order_of_their_names(void **state)
{
	struct config c;

	(void)state;
	put("ferry.conf.d/20-b.conf", "[fleet]\npacket = 1200\n");
	put("ferry.conf.d/10-a.conf", "[fleet]\npacket = 1300\nvni = 7\n[node a]\nport = 7000\n"
				      "interfaces = eth1 eth2\n");
	put("ferry.conf.d/30-c.conf", "[service web]\naddress = 203.0.113.10\nport = 443\n"
				      "protocol = tcp\nnode = a\n");
	put("ferry.conf.d/.hidden.conf", "wrong\n");
	put("ferry.conf.d/10-a.conf~", "wrong\n");
	put("ferry.conf.d/README", "wrong\n");
	if (load(&c))
		fail_msg("%s", error);
	assert_int_equal(c.packet, 1200);
	assert_int_equal(c.vni, 7);
	assert_int_equal(c.self->port, 7000);
	assert_int_equal(c.self->number, 1);
	assert_int_equal(c.self->n_interfaces, 2); /* replaced, not added to */
	assert_string_equal(c.self->interfaces[0], "eth1");
	assert_int_equal(c.n_services, 1);
	assert_int_equal(c.drop_ins, 3);
	config_free(&c);
}

static void a_key_is_given_once_a_file(void **state)
{
	char says[256];

	(void)state;
	put("ferry.conf.d/a.conf", "# twice\n[node a]\nport = 1\n[fleet]\n[node a]\nport = 2\n");
	snprintf(says, sizeof(says), "%s:6: port: given twice in its section, first in %s:3",
		 path_of("ferry.conf.d/a.conf"), path_of("ferry.conf.d/a.conf"));
	refused(-EINVAL, says);
	put("ferry.conf.d/a.conf", "[node a]\nport = 1\n");
	put("ferry.conf.d/b.conf", "[node a]\nport = 2\n");
	taken();
	put("ferry.conf.d/b.conf", "\n[node a]\nport = 0\n");
	snprintf(says, sizeof(says), "%s:3: port: a number from 1 to 65535",
		 path_of("ferry.conf.d/b.conf"));
	refused(-EINVAL, says);
	put("ferry.conf.d/b.conf", "port = 2\n"); /* a file begins in no section */
	refused(-EINVAL, "b.conf:1: a key before any section");
}

static void what_is_no_file(void **state)
{
	(void)state;
	assert_int_equal(mkfifo(path_of("ferry.conf.d/f.conf"), 0600), 0);
	refused(-EINVAL, "f.conf: cannot be read: it is no regular file");
	assert_int_equal(unlink(path_of("ferry.conf.d/f.conf")), 0);
	assert_int_equal(mkdir(path_of("ferry.conf.d/d.conf"), 0700), 0);
	refused(-EISDIR, "d.conf: cannot be read: Is a directory");
	assert_int_equal(rmdir(path_of("ferry.conf.d/d.conf")), 0);
	assert_int_equal(symlink("nowhere", path_of("ferry.conf.d/s.conf")), 0);
	refused(-ENOENT, "s.conf: cannot be read: No such file");
	put("nowhere", "");
	assert_int_equal(unlink(path_of("ferry.conf.d/s.conf")), 0);
	assert_int_equal(symlink("../target", path_of("ferry.conf.d/s.conf")), 0);
	put("target", "[fleet]\nvni = 0\n"); /* followed, and named by the link */
	refused(-EINVAL, "s.conf:2: vni: a number");
	put("target", "[fleet]\nvni = 1\n");
	taken();
	assert_int_equal(unlink(path_of("ferry.conf.d/s.conf")), 0);
	assert_int_equal(rmdir(path_of("ferry.conf.d")), 0);
	taken();
	put("ferry.conf.d", "");
	refused(-ENOTDIR, "its directory .d cannot be read: Not a directory");
	assert_int_equal(unlink(path_of("ferry.conf")), 0);
	refused(-ENOENT, "ferry.conf: cannot be read: No such file");
	assert_int_equal(mkdir(path_of("ferry.conf"), 0700), 0);
	refused(-EISDIR, "ferry.conf: cannot be read: Is a directory");
}

/* As another user: where the check needs no right, and where a file may not be read. */
static int as_nobody(const char *says)
{
	int status;

	if (!fork()) {
		FILE *text = fmemopen(error, sizeof(error), "w");

		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) || !text)
			_exit(100);
		int r = config_check(path_of("ferry.conf"), NULL, text, text);

		fclose(text);
		_exit(strstr(error, says) ? -r : 101);
	}
	assert_true(wait(&status) > 0 && WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void a_check_needs_no_right_but_to_read(void **state)
{
	(void)state;
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chmod(path_of("ferry.conf"), 0644), 0);
	assert_int_equal(as_nobody("ferry.conf: ok: 1 nodes, 0 services\n"), 0);
	assert_int_equal(chmod(path_of("ferry.conf"), 0600), 0);
	assert_int_equal(as_nobody("ferry.conf: cannot be read: Permission denied"), -EACCES);
}

static const struct {
	const char *name, *text;
	size_t size;      /* where it holds a NUL */
	const char *says; /* NULL: taken */
} texts[] = {
	{ "CRLF",
	  "[fleet]\r\n\r\n[node a]\r\nnumber = 1\r\naddress = 192.0.2.1\r\n"
	  "interfaces = eth0\r\n",
	  0, NULL },
	{ "a byte order mark", "\xef\xbb\xbf" NODE, 0, NULL },
	{ "a byte order mark and a comment", "\xef\xbb\xbf# x\n" NODE, 0, NULL },
	{ "a byte order mark later", NODE "\xef\xbb\xbfport = 5\n", 0,
	  "5: unknown key '\xef\xbb\xbfport' in [node]: its keys are" },
	{ "UTF-16", "\xff\xfe[\0n\0o\0d\0e\0", 12, "1: a control character: this is no text" },
	{ "a NUL", NODE "\0port = x\n", sizeof(NODE) + 9, "5: a control character" },
	{ "an escape", NODE "port = \33[2J\n", 0, "5: a control character" },
	{ "a carriage return in a line", NODE "port = 5\rnumber = 2\n", 0,
	  "5: a control character" },
	{ "no newline at the end", NODE "port = 5", 0, NULL },
	{ "a cut last line", NODE "port", 0, "5: no 'key = value'" },
	{ "another alphabet in a comment", "# \xd1\x85\n" NODE, 0, NULL },
	{ "an indented key", NODE "  port = 5\n", 0, "5: an indented line" },
	{ "an indented section, and keys that are not the last one's",
	  NODE " [node b]\nnumber = 2\nnonsense\n", 0,
	  "5: an indented line: a key begins its line, "
	  "and its value ends there (and 1 more" },
	{ "a section that is no text", NODE "[node \33]\nnumber = 2\n", 0,
	  "5: a control character: this is no text" },
	{ "blanks before a comment", NODE "   ; x\n\t# y\n   \n", 0, NULL },
	{ "an empty file", "", 0, "there is no [node a], and that is this node" },
	{ "blank lines", "\n\n \n", 0, "there is no [node a], and that is this node" },
};

static void what_is_no_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		printf("%s\n", texts[i].name);
		put_octets("ferry.conf", texts[i].text,
			   texts[i].size ? texts[i].size : strlen(texts[i].text));
		if (texts[i].says)
			refused(-EINVAL, texts[i].says);
		else
			taken();
	}
}

static void a_line_has_199_octets(void **state)
{
	char line[512];

	(void)state;
	for (int size = 190; size < 230; size++) {
		memset(line, 'x', sizeof(line));
		memcpy(line, "[node a] ; ", 11);
		strcpy(line + size, "\nnumber = 1\naddress = 192.0.2.1\n"
				    "interfaces = eth0\n");
		put("ferry.conf", line);
		if (size > 199)
			refused(-EINVAL, "1: a line of more than 199 octets");
		else
			taken();
	}
}

/* What config_check() says, all of it. */
static int check(const char *self, char *text, size_t size)
{
	FILE *f = fmemopen(text, size, "w");
	int r;

	assert_non_null(f);
	r = config_check(path_of("ferry.conf"), self, f, f);
	assert_int_equal(fclose(f), 0);
	return r;
}

static unsigned int lines(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void a_check_tells_every_error(void **state)
{
	char text[16384], many[1024];

	(void)state;
	put("ferry.conf", "[fleet]\nvin = 1\npacket = 1\n" NODE
			  "[node b]\nnumber = x\naddress = 192.0.2.2\n[node c]\nnumber = 1\n"
			  "address = 192.0.2.1\n[service s]\nport = 1\n");
	put("ferry.conf.d/a.conf", "[nude d]\nnumber = 4\n[fleet]\nport\n");
	assert_int_equal(check(NULL, text, sizeof(text)), -EINVAL);
	assert_int_equal(lines(text), 5); /* what belongs together waits for what is read */
	assert_non_null(strstr(text, "ferry.conf:2: unknown key 'vin'"));
	assert_non_null(strstr(text, "ferry.conf:3: packet: a number from 576 to 65535"));
	assert_non_null(strstr(text, "ferry.conf:9: number: a number"));
	assert_non_null(strstr(text, "a.conf:1: unknown section [nude]: did you mean [node NAME]"));
	assert_non_null(strstr(text, "a.conf:4: no 'key = value'"));
	put("ferry.conf.d/a.conf", "");
	assert_int_equal(check(NULL, text, sizeof(text)), -EINVAL);
	assert_int_equal(lines(text), 9); /* three, c twice and without devices, s without three */
	assert_non_null(strstr(text, "[node c] and [node a] have the same number"));
	assert_non_null(strstr(text, "[node c] and [node a] share an address"));
	assert_non_null(strstr(text, "interfaces is missing in [node c]"));
	assert_non_null(strstr(text, "address is missing in [service s]"));
	strcpy(many, "[fleet]\n");
	for (int i = 0; i < CONFIG_ERRORS + 3; i++)
		strcat(many, "nonsense\n");
	put("ferry.conf", many);
	assert_int_equal(check(NULL, text, sizeof(text)), -EINVAL);
	assert_int_equal(lines(text), CONFIG_ERRORS + 1);
	assert_non_null(strstr(text, "ferry.conf: 4 more errors\n")); /* no [node NAME] is one */
	assert_int_equal(load(&(struct config){}), -EINVAL);
	assert_non_null(strstr(error, "ferry.conf:2: no 'key = value' (and 23 more"));
}

static void a_check_is_for_one_node_or_for_all(void **state)
{
	char text[1024];

	(void)state;
	put("ferry.conf", NODE "[node b]\nnumber = 2\naddress = 192.0.2.2\n");
	assert_int_equal(check("a", text, sizeof(text)), 0);
	assert_non_null(strstr(text, "ferry.conf: ok: 2 nodes, 0 services\n"));
	assert_int_equal(check("b", text, sizeof(text)), -EINVAL);
	assert_non_null(strstr(text, "interfaces is missing in [node b]"));
	assert_int_equal(check(NULL, text, sizeof(text)), -EINVAL);
	assert_int_equal(check("c", text, sizeof(text)), -EINVAL);
	assert_non_null(strstr(text, "there is no [node c], and that is this node"));
	put("ferry.conf.d/b.conf", "[node b]\ninterfaces = eth0\n");
	assert_int_equal(check(NULL, text, sizeof(text)), 0);
	assert_non_null(strstr(text, "ferry.conf: ok: 2 nodes, 0 services, 1 drop-ins\n"));
	put("ferry.conf", "");
	put("ferry.conf.d/b.conf", "");
	assert_int_equal(check(NULL, text, sizeof(text)), -EINVAL);
	assert_non_null(strstr(text, "ferry.conf: there is no [node NAME]"));
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(drop_ins_come_in_the_order_of_their_names, fresh),
		cmocka_unit_test_setup(a_key_is_given_once_a_file, fresh),
		cmocka_unit_test_setup(what_is_no_file, fresh),
		cmocka_unit_test_setup(a_check_needs_no_right_but_to_read, fresh),
		cmocka_unit_test_setup(what_is_no_text, fresh),
		cmocka_unit_test_setup(a_line_has_199_octets, fresh),
		cmocka_unit_test_setup(a_check_tells_every_error, fresh),
		cmocka_unit_test_setup(a_check_is_for_one_node_or_for_all, fresh),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
