/* SPDX-License-Identifier: Apache-2.0 */
/* A gang: devices of one container whose kernels wait for each other, as those of an
 * all-reduce do: what runs far longer than is known is over the same short time after a launch was
 * admitted that was held back on another device, again and again. What is independent may run
 * longer than is known, too, but has no such time.
 *
 * Pure: no driver, no clock. The caller's lock guards it. Times are nanoseconds of
 * CLOCK_MONOTONIC. */
#ifndef VGPU_COMPUTE_GANG_H
#define VGPU_COMPUTE_GANG_H

#include <stdbool.h>
#include <stdint.h>

/* What was found is believed for so long; then launches are held back again as usual, and it is
 * found anew by a few more ends. */
#define GANG_HOLDS_NS 30000000000ull

/* Work that took longer by so much than was thought waited for something. */
#define GANG_OVER_NS 500000u

/* What was seen so far. Begin with zeros. */
struct gang {
    uint64_t key;      /* of the kernel that is looked at (compute/durations.h) */
    uint64_t after_ns; /* the time after which it is over */
    uint64_t seen_ns;  /* when it was last seen */
    unsigned score;
};

/* A kernel, or an interval that ends with it, took longer than was thought by GANG_OVER_NS or more.
 * It was over at `at_ns`, `after_ns` after the last launch was admitted that had been held back on
 * another device since it was due. True where it is certain by now. */
bool gang_judge(struct gang *gang, uint64_t key, uint64_t after_ns, uint64_t at_ns);

#endif
