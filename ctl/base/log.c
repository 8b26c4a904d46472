// SPDX-License-Identifier: BSD-2-Clause
/*
 * Log lines: built whole, written at once, so that lines of several processes do not mix. What
 * stands in a line may come from an application, a peer or a file, and never makes a second one.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "log.h"

#define LINE 1024

static char log_name[64] = "ferry";
static bool log_prefix;
static int log_least = LOG_INFO;

void log_open(const char *name)
{
	snprintf(log_name, sizeof(log_name), "%s", name);
	log_prefix = !isatty(STDERR_FILENO);
}

int log_level(const char *name)
{
	static const char *const names[] = {
		[LOG_ERR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info"
	};

	for (int i = 0; i < (int)ARRAY_SIZE(names); i++) {
		if (!names[i] || strcmp(names[i], name))
			continue;
		log_least = i;
		return 0;
	}
	return -EINVAL;
}

/* C0, DEL, and C1 as UTF-8 writes it: a terminal takes them as orders. */
static int control(const char *c) /* of how many octets, 0: none */
{
	const unsigned char *u = (const unsigned char *)c;

	if (u[0] < 0x20 || u[0] == 0x7f)
		return 1;
	return u[0] == 0xc2 && u[1] >= 0x80 && u[1] < 0xa0 ? 2 : 0;
}

size_t log_format(char *line, size_t size, int priority, const char *text)
{
	size_t n = 0, room = size - 8; /* for an octet as \xNN, "...", and the newline */
	int escape = 0;

	if (log_prefix)
		n += (size_t)snprintf(line, size, "<%d>", priority);
	n += (size_t)snprintf(line + n, size - n, "%s: ", log_name);
	for (; *text && n < room; text++) {
		escape = escape ? escape : control(text);
		if (!escape) {
			line[n++] = *text;
			continue;
		}
		n += (size_t)snprintf(line + n, size - n, "\\x%02x", (unsigned char)*text);
		escape--;
	}
	if (*text)
		n += (size_t)snprintf(line + n, size - n, "...");
	line[n++] = '\n';
	return n;
}

void log_line(int priority, const char *format, ...)
{
	char text[LINE], line[LINE];
	va_list args;
	int n;

	if (priority > log_least)
		return;
	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		return;
	if (write(STDERR_FILENO, line, log_format(line, sizeof(line), priority, text)) < 0)
		return; /* nowhere left to say it */
}
