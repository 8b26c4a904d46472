/* SPDX-License-Identifier: BSD-2-Clause */
/* What ferry-guard answers, as text; for ferry guard list and ferry listener. */
#ifndef GUARD_TEXT_H
#define GUARD_TEXT_H

#include <jansson.h>

static inline long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static inline const char *words(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

#endif
