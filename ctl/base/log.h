/* SPDX-License-Identifier: BSD-2-Clause */
/* One line an event on stderr, with a syslog priority a service manager understands ("<4>"). No
 * payload is ever logged. */
#ifndef LOG_H
#define LOG_H

#include <syslog.h>
#include "util.h"

/* name stands before each line. Text without prefix where stderr is a terminal. */
void log_open(const char *name);
void log_line(int priority, const char *format, ...) _printf_(2, 3);

#define log_error(...) log_line(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)

#endif
