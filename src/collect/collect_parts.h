/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the collector share. */
#ifndef VGPU_COLLECT_COLLECT_PARTS_H
#define VGPU_COLLECT_COLLECT_PARTS_H

#include "collect/collection.h"

/* The command line of a process of this PID namespace, if it is the one that started then (field 22
 * of /proc/PID/stat; 0 whichever it is), when it was called `name`; NULL where it is not, or cannot
 * be read. From malloc. */
char *collect_command(int pid, const char *name, uint64_t start_time);

/* The PID namespace that a process is in, and the number it has there; 0 where it cannot be told.
 */
uint64_t collect_namespace(unsigned pid);
int collect_inner_pid(unsigned pid);

/* GPU time: fills in the shares of the device. `measured`: its programs measure all that they do
 * there; else they may, for a neighbour's sake. */
struct region_reading;
void collect_shares(const struct region_reading *reading, unsigned device, bool measured,
    struct collected_device *collected);

#endif
