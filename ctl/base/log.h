/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One line an event on stderr, with a syslog priority that a service manager understands ("<4>"),
 * whatever is in the text: what would break a line or steer a terminal is written as \xNN, and what
 * is too long ends with "...". No payload is ever logged.
 */
#ifndef LOG_H
#define LOG_H

#include <stddef.h>
#include <syslog.h>
#include "util.h"

/* name stands before each line. Text without prefix where stderr is a terminal. */
void log_open(const char *name);
/* "error", "warning" or "info": what is less is not written from here on. 0 or -EINVAL. */
int log_level(const char *name);
void log_line(int priority, const char *format, ...) _printf_(2, 3);

/* The line for an event, newline and all, at most size octets of it; how many. size is 128 or more.
 * For log_line(), and its tests. */
size_t log_format(char *line, size_t size, int priority, const char *text);

#define log_error(...) log_line(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)

#endif
