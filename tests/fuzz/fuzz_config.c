// SPDX-License-Identifier: BSD-2-Clause
/*
 * libFuzzer target: the configuration (ctl/agent/config*.c, with the system's inih) on any octets.
 * Whatever they are, it is taken, and then what was taken is in its ranges, or it is refused by one
 * line of text. Seeds: the README's example; words: tests/fuzz/fuzz_config.dict.
 */
#include <sys/mman.h>
#include "../../ctl/base/util.c"
#include "../../ctl/agent/config.c"
#include "../../ctl/agent/config_keys.c"
#include "../../ctl/agent/config_read.c"
#include "../../ctl/agent/config_unknown.c"

static void must(bool truth)
{
	if (!truth)
		abort();
}

static void in_range(const struct config *c)
{
	must(c->packet >= 576 && c->packet <= 65535 && c->vni && c->vni <= 0xffffff && c->n_nodes);
	for (unsigned int i = 0; i < c->n_nodes; i++) {
		const struct config_node *n = &c->nodes[i];

		must(name_valid(n->name) && n->n_interfaces && n->port && n->addresses);
		must(n->number && n->number < FERRY_NODES && n->addresses <= 2);
		must(n->n_tunnel && n->n_tunnel <= CONFIG_INTERFACES && !(n->buckets4 & 1));
		must(config_node_by_number(c, n->number) == n);
	}
	for (unsigned int i = 0; i < c->n_services; i++)
		must(c->services[i].key.port && c->services[i].hop && c->services[i].key.proto);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("config", MFD_CLOEXEC);
	char path[64], error[768] = "";
	struct config c;

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!config_load(&c, path, NULL, error, sizeof(error))) {
		must(!error[0]);
		in_range(&c);
		config_free(&c);
	} else {
		must(error[0] && !strpbrk(error, "\n\r\33"));
	}
	close(fd);
	return 0;
}
