// SPDX-License-Identifier: BSD-2-Clause
/*
 * The files of the configuration, read with inih: sections, keys, and what is no line of either.
 * inih takes "key = value" apart; lines and sections are looked at before it sees them, because it
 * stops at a NUL, cuts long lines in two, joins indented ones, and knows the line of the first
 * error only. What inih is given is a line that it understands, or an empty one.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "agent/config_reader.h"

int config_wrong(struct reader *r, struct config_place at, const char *format, ...)
{
	char *text = r->n_errors < CONFIG_ERRORS ? r->errors[r->n_errors] : NULL;
	size_t size = sizeof(r->errors[0]), n;
	va_list args;

	r->n_errors++;
	if (r->section)
		r->section->wrong = true;
	if (!text)
		return -EINVAL;
	snprintf(text, size, at.line ? "%s:%d: " : "%s: ", r->files[at.file], at.line);
	n = strlen(text);
	if (r->key)
		snprintf(text + n, size - n, "%s: ", r->key);
	n = strlen(text);
	va_start(args, format);
	vsnprintf(text + n, size - n, format, args);
	va_end(args);
	return -EINVAL;
}

/* inih: what is returned is its own count of errors, which nobody asks for. */
static int on_key(void *user, const char *section, const char *word, const char *value)
{
	struct reader *r = user;
	struct config_place *given;
	const struct key *k;

	(void)section;
	r->has_key = true;
	if (!r->kind) {
		if (!r->skips)
			config_wrong(r, r->at, "a key before any section");
		r->skips = r->lost = true;
		return 1;
	}
	for (k = r->kind->keys; k->name && strcmp(k->name, word);)
		k++;
	if (!k->name)
		return config_unknown_key(r, word), 1;
	r->key = k->name;
	given = &r->section->given[k - r->kind->keys];
	if (given->line && given->file == r->at.file) {
		config_wrong(r, r->at, "given twice in its section, first in %s:%d",
			     r->files[given->file], given->line);
	} else {
		*given = r->at;
		k->set(r, k, value, r->object);
	}
	r->key = NULL;
	return 1;
}

/* text: what stands between the brackets. */
static int open_section(struct reader *r, char *text)
{
	const struct section_kind *k = config_kinds, *none = config_kinds + SECTIONS;
	char *name = text + strcspn(text, " \t");

	if (*name)
		*name++ = 0;
	name += strspn(name, " \t");
	while (k < none && strcmp(k->word, text))
		k++;
	if (k == none)
		return config_unknown_section(r, text);
	if (!k->named && *name)
		return config_wrong(r, r->at, "[%s] has no name, here it is '%s'", k->word, name);
	if (k->named && !name_valid(name))
		return config_wrong(r, r->at,
				    "the name of %s %s is 1 to %u of a-zA-Z0-9._-, with "
				    "no dot in front, not '%s'",
				    strchr("aeiou", *k->word) ? "an" : "a", k->word,
				    CONFIG_NAME - 1, name);
	r->object = k->section(r->c, name);
	if (!r->object)
		return config_wrong(r, r->at, "out of memory");
	r->section = config_section(r->object);
	r->kind = k;
	if (!r->section->at.line)
		r->section->at = r->at;
	return 0;
}

/* What follows belongs to none that is known, and is not looked at. */
static void no_section(struct reader *r)
{
	r->kind = NULL;
	r->section = NULL;
	r->skips = r->lost = true;
}

static void section_line(struct reader *r, const char *line)
{
	_cleanup_free_ char *text = strdup(line + 1);
	char *end = text ? strchr(text, ']') : NULL;
	size_t blank = end ? strspn(end + 1, " \t") : 0;

	r->kind = NULL;
	r->section = NULL;
	if (!end || (end[1 + blank] && !strchr(";#", end[1 + blank]))) {
		config_wrong(r, r->at, "no '[section]'");
		no_section(r);
		return;
	}
	*end = 0;
	if (open_section(r, text))
		no_section(r);
}

/* The line as it is judged; what is wrong with it is told, and nothing of it left. */
static void judge_line(struct reader *r, char *line, bool long_one, bool control)
{
	char first;

	if (r->at.line == 1 && !strncmp(line, "\xef\xbb\xbf", 3))
		memmove(line, line + 3, strlen(line + 3) + 1);
	first = line[strspn(line, " \t")];
	r->has_key = false;
	r->wants_key = first && first != ';' && first != '#' && first != '[';
	if (control)
		config_wrong(r, r->at, "a control character: this is no text");
	else if (long_one)
		config_wrong(r, r->at, "a line of more than %d octets", INI_MAX_LINE - 1);
	else if ((r->wants_key || first == '[') && first != *line)
		config_wrong(r, r->at, "an indented line: a key begins its line, and its value "
				       "ends there");
	else if (first == '[')
		section_line(r, line);
	else
		return;
	if (first == '[' && (control || long_one || first != *line))
		no_section(r);
	r->wants_key = false;
	*line = 0;
}

static void end_of_line(struct reader *r)
{
	if (r->wants_key && !r->has_key)
		config_wrong(r, r->at, "no 'key = value'");
	r->wants_key = false;
}

/* For inih, in the place of fgets(). */
static char *next_line(char *to, int size, void *arg)
{
	struct reader *r = arg;
	bool long_one = false, control = false;
	int n = 0, c;

	end_of_line(r);
	c = getc(r->file);
	if (c == EOF)
		return NULL;
	r->at.line++;
	for (; c != EOF && c != '\n'; c = getc(r->file)) {
		if (n < size - 1)
			to[n++] = (char)c;
		else
			long_one = true;
	}
	if (n && to[n - 1] == '\r')
		n--;
	to[n] = 0;
	for (int i = 0; i < n; i++)
		control |= iscntrl((unsigned char)to[i]) && to[i] != '\t';
	judge_line(r, to, long_one, control);
	return to;
}

/* A device, or a FIFO, would be read for ever or not at all. */
static FILE *open_file(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f;

	if (fd < 0 || fstat(fd, &st))
		return NULL;
	errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	f = S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
	if (f)
		TAKE_FD(fd);
	return f;
}

/* what: of the file that is read, or nothing: itself. */
static int cannot_read(struct reader *r, const char *what, int error)
{
	struct config_place whole = { r->n_files - 1, 0 };

	config_wrong(r, whole, "%scannot be read: %s", what,
		     error == EINVAL ? "it is no regular file" : strerror(error));
	return -error;
}

/* Its name is kept for what is told about it. */
static int add_file(struct reader *r, const char *path)
{
	char **files = realloc(r->files, (r->n_files + 1) * sizeof(*files));

	if (!files)
		return -ENOMEM;
	r->files = files;
	files[r->n_files] = strdup(path);
	if (!files[r->n_files])
		return -ENOMEM;
	r->at = (struct config_place){ r->n_files++, 0 };
	return 0;
}

static int read_file(struct reader *r, const char *path)
{
	int e = add_file(r, path);

	if (e)
		return e;
	r->file = open_file(path);
	if (!r->file)
		return cannot_read(r, "", errno);
	r->kind = NULL;
	r->skips = false;
	e = ini_parse_stream(next_line, r, on_key, r);
	e = ferror(r->file) ? EIO : e < 0 ? ENOMEM : 0;
	fclose(r->file);
	r->section = NULL;
	return e ? cannot_read(r, "", e) : 0;
}

static int is_drop_in(const struct dirent *d)
{
	const char *end = strrchr(d->d_name, '.');

	return d->d_name[0] != '.' && end && !strcmp(end, ".conf");
}

/* Not alphasort(): the order is that of the octets, whatever the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct reader *r, const char *dir)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_drop_in, by_name), e = 0;

	if (n < 0)
		return errno == ENOENT ? 0 : cannot_read(r, "its directory .d ", errno);
	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *path = NULL;
		int one;

		one = asprintf(&path, "%s/%s", dir, found[i]->d_name) < 0 ? -ENOMEM :
									    read_file(r, path);
		e = e ? e : one;
		free(found[i]);
	}
	free(found);
	return e;
}

int config_read(struct reader *r, const char *path)
{
	_cleanup_free_ char *dir = NULL;
	int e;

	if (asprintf(&dir, "%s.d", path) < 0) {
		dir = NULL;
		return -ENOMEM;
	}
	e = read_file(r, path);
	return e ? e : read_drop_ins(r, dir);
}

void config_read_end(struct reader *r)
{
	for (unsigned int i = 0; i < r->n_files; i++)
		free(r->files[i]);
	free(r->files);
}
