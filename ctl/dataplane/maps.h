/* SPDX-License-Identifier: BSD-2-Clause */
/* The pinned maps by number and name, for the files of this folder. */
#ifndef DATAPLANE_MAPS_H
#define DATAPLANE_MAPS_H

#define MAPS(X)                                                                                    \
	X(FLOWS4, flows4)                                                                          \
	X(FLOWS6, flows6)                                                                          \
	X(STASH, stash)                                                                            \
	X(WORDS, words)                                                                            \
	X(RECORDS, records)                                                                        \
	X(NEXTHOPS, nexthops)                                                                      \
	X(DEVICES, devices)                                                                        \
	X(PEERS, peers)                                                                            \
	X(SERVICES, services)                                                                      \
	X(COUNTERS, counters)                                                                      \
	X(CONTROL, control)

enum map_id {
#define X(id, name) MAP_##id,
	MAPS(X)
#undef X
	MAP_COUNT
};

extern const char *const map_names[MAP_COUNT];

/* The fence's place among a device's egress filters. */
#define TC_PRIORITY 0x4652
#define TC_HANDLE 1
/* After the name of a link's pin: the device's clsact is of our making. */
#define CLSACT_CLAIM ":clsact"

struct dataplane;
/* Sets *text of dataplane_error() and returns error. */
int dataplane_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The path of a pin: through the locked directory's descriptor, which works whoever the process has
 * become and whatever became of the path. */
#define PIN_PATH 256
const char *pin_path(const struct dataplane *d, const char *name, char path[PIN_PATH]);
/* Locks the pin directory. pins: a descriptor that holds the lock already, and is the dataplane's
 * from here on; 0: it is made, where it is not, and opened; LOCK_IF_THERE: -ENOENT where it is
 * not. 0, or dataplane_fail(). */
#define LOCK_IF_THERE (-1)
int lock_root(struct dataplane *d, int pins);
/* Whether pins can be anywhere. 0, or dataplane_fail(). */
int check_bpffs(void);
/* Opens the pinned maps and maps their memory. */
int maps_open(struct dataplane *d);
void maps_close(struct dataplane *d);
/* detach.c: takes the fence off, and clsact where it is ours and nothing else hangs on it; a filter
 * in the fence's place that is not the fence stays. 0 or fails. */
int fence_off(struct dataplane *d, uint32_t ifindex, bool clsact);

#endif
