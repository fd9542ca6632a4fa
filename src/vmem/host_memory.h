/* SPDX-License-Identifier: Apache-2.0 */
/* How much host memory may back device memory. What the driver takes for that is probably not
 * charged to the process's memory cgroup, so what the container has spilled counts beside what the
 * cgroup says: a cgroup that charges it all the same has it counted twice, and refuses early. */
#ifndef VGPU_VMEM_HOST_MEMORY_H
#define VGPU_VMEM_HOST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Whose bound it is, in words for a log line: "the memory cgroup's limit". */
struct host_memory {
    uint64_t free_bytes; /* UINT64_MAX: no bound is known */
    const char *bound;
};

/* By the memory cgroups that the process sees itself in (v2 or v1), and by what the machine has
 * available less a reserve of 1/32, 256 MiB at least. `spilled_bytes`: of the whole container. Some
 * 50 us; keeps errno. */
struct host_memory host_memory_look(uint64_t spilled_bytes);

/* The same below another root than "" (tests): ROOT/proc, ROOT/sys/fs/cgroup. */
struct host_memory host_memory_look_below(const char *root, uint64_t spilled_bytes);

#endif
