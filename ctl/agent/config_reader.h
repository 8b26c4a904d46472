/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of the configuration: config_read.c reads files into sections and keys, config_keys.c
 * knows which there are and what a value may be, config.c judges what belongs together. Whoever
 * finds an error tells it by config_wrong() and goes on, so that all are found at once.
 */
#ifndef CONFIG_READER_H
#define CONFIG_READER_H

#include "agent/config.h"
#include "base/util.h"

struct reader {
	struct config *c;
	char **files; /* that were read; their names, as errors tell them */
	unsigned int n_files;
	FILE *file;
	struct config_place at;          /* the line that is being read */
	bool wants_key, has_key;         /* the line must be, and was, one of "key = value" */
	const struct section_kind *kind; /* of the section it is in, NULL: none that is known */
	void *object;                    /* its struct */
	struct config_section *section;  /* in that */
	const char *key; /* that is being set */
	char errors[CONFIG_ERRORS][640];
	unsigned int n_errors; /* all of them */
	bool skips;            /* the keys of a section that was not understood */
	bool lost;             /* there was one */
};

/* -EINVAL. The sentence begins with the place, where it has a line, and the key that is set. */
int config_wrong(struct reader *r, struct config_place at, const char *format, ...) _printf_(3, 4);
/* Reads path and its drop-ins. 0, whatever they say, or -errno of one that cannot be read, which is
 * told as an error. */
int config_read(struct reader *r, const char *path);
void config_read_end(struct reader *r);

struct key;
/* 0, or what config_wrong() returned; section: the struct of the section that the key is in. */
typedef int (*key_set)(struct reader *r, const struct key *key, const char *value, void *section);

struct key {
	const char *name;
	key_set set;
	uint32_t min, max; /* of a number */
	size_t offset;     /* in the section's struct */
	bool needed;
};

struct section_kind {
	const char *word; /* [word], or [word NAME] */
	const struct key *keys;
	/* The section of that name, made where it is new; NULL: no memory. */
	void *(*section)(struct config *c, const char *name);
	bool named;
};

enum { SECTION_FLEET, SECTION_NODE, SECTION_SERVICE, SECTION_APPLICATION, SECTIONS };
extern const struct section_kind config_kinds[SECTIONS];

static inline struct config_section *config_section(void *object)
{
	return (struct config_section *)((char *)object + CONFIG_NAME);
}

/* Tell that there is no such key in the section that is read, or no such section, and what is. */
int config_unknown_key(struct reader *r, const char *word);
int config_unknown_section(struct reader *r, const char *word);

#endif
