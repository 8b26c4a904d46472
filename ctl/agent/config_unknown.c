// SPDX-License-Identifier: BSD-2-Clause
/*
 * What was meant by a key or section that there is not: the nearest one, where it is near enough to
 * be a slip, else all that there are.
 */
#include <string.h>
#include "agent/config_reader.h"

/* How many letters must be put in, left out, changed or swapped to make one of the other: optimal
 * string alignment. */
static unsigned int distance(const char *a, const char *b)
{
	size_t n = strnlen(a, 31), m = strnlen(b, 31);
	unsigned int d[32][32];

	for (size_t i = 0; i <= n; i++)
		for (size_t k = 0; k <= m; k++) {
			unsigned int best = (unsigned int)(i ? k ? ~0U : i : k);

			if (i && d[i - 1][k] + 1 < best)
				best = d[i - 1][k] + 1;
			if (k && d[i][k - 1] + 1 < best)
				best = d[i][k - 1] + 1;
			if (i && k && d[i - 1][k - 1] + (a[i - 1] != b[k - 1]) < best)
				best = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    d[i - 2][k - 2] + 1 < best)
				best = d[i - 2][k - 2] + 1;
			d[i][k] = best;
		}
	return d[n][m];
}

/* One change in three letters is a slip, more is another word. */
static bool near(const char *word, const char *known)
{
	return distance(word, known) <= (strlen(word) + 1) / 3;
}

int config_unknown_key(struct reader *r, const char *word)
{
	const struct section_kind *kind = r->kind;
	const struct key *best = NULL;
	char all[256] = "";

	for (const struct key *k = kind->keys; k->name; k++) {
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", *all ? ", " : "",
			 k->name);
		if (near(word, k->name) &&
		    (!best || distance(word, k->name) < distance(word, best->name)))
			best = k;
	}
	r->key = NULL;
	if (best)
		return config_wrong(r, r->at, "unknown key '%s' in [%s]: did you mean '%s'?", word,
				    kind->word, best->name);
	return config_wrong(r, r->at, "unknown key '%s' in [%s]: its keys are %s", word, kind->word,
			    all);
}

int config_unknown_section(struct reader *r, const char *word)
{
	char all[256] = "";

	for (const struct section_kind *k = config_kinds; k < config_kinds + SECTIONS; k++) {
		if (near(word, k->word))
			return config_wrong(r, r->at, "unknown section [%s]: did you mean [%s%s]?",
					    word, k->word, k->named ? " NAME" : "");
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s[%s%s]", *all ? ", " : "",
			 k->word, k->named ? " NAME" : "");
	}
	return config_wrong(r, r->at, "unknown section [%s]: there are %s", word, all);
}
