/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the machine's memory may still be taken. */
#ifndef VGPU_BASE_MACHINE_MEMORY_H
#define VGPU_BASE_MACHINE_MEMORY_H

#include <stdint.h>

/* What ROOT/proc/meminfo says to be available, less a reserve of 1/32 of all, 256 MiB at least.
 * UINT64_MAX where it does not say. Opens one file; changes errno. */
uint64_t machine_memory_free(const char *root);

#endif
