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

struct dataplane;
/* Sets *text of dataplane_error() and returns error. */
int dataplane_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The path of a pin: through the locked directory's descriptor, which works whoever the process has
 * become and whatever became of the path. */
#define PIN_PATH 256
const char *pin_path(const struct dataplane *d, const char *name, char path[PIN_PATH]);
/* Locks the pin directory. pins: a descriptor that holds the lock already, and is the dataplane's
 * from here on; 0: it is made, where it is not, and opened. 0, or dataplane_fail(). */
int lock_root(struct dataplane *d, int pins);
/* Opens the pinned maps and maps their memory. */
int maps_open(struct dataplane *d);
void maps_close(struct dataplane *d);

#endif
