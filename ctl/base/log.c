// SPDX-License-Identifier: BSD-2-Clause
/* Log lines: built whole, written at once, so that lines of several processes do not mix. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "log.h"

static char log_name[64] = "ferry";
static bool log_prefix;

void log_open(const char *name)
{
	snprintf(log_name, sizeof(log_name), "%s", name);
	log_prefix = !isatty(STDERR_FILENO);
}

void log_line(int priority, const char *format, ...)
{
	char line[1024];
	va_list args;
	int n = 0, m;

	if (log_prefix)
		n = snprintf(line, sizeof(line), "<%d>", priority);
	n += snprintf(line + n, sizeof(line) - (size_t)n, "%s: ", log_name);
	va_start(args, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	n = m < 0 ? n : n + m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere left to say it */
}
