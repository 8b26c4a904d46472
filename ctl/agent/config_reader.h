/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the reader of the configuration (config.c) and its keys (config_keys.c). */
#ifndef CONFIG_READER_H
#define CONFIG_READER_H

#include <stdio.h>
#include "agent/config.h"

struct reader {
	struct config *c;
	FILE *file;
	int line;        /* that is being read or checked, 0 none */
	const char *key; /* that is being read */
	uint32_t fleet_keys;
	char error[256]; /* of the first line that is wrong */
	int error_line;
};

/* -EINVAL; the first one is kept. value: stands behind what, or NULL. */
int config_wrong(struct reader *r, const char *what, const char *value);

extern const char *const config_fleet_keys[], *const config_node_keys[],
	*const config_service_keys[];

/* A key of the section, for the first time in it: 0, or -EINVAL. */
int config_once(struct reader *r, const char *const keys[], const char *key, uint32_t *given);
int config_set_fleet(struct reader *r, const char *key, const char *value);
int config_set_node(struct reader *r, struct config_node *n, const char *key, const char *value);
int config_set_service(struct reader *r, struct config_service *s, const char *key,
		       const char *value);

#endif
