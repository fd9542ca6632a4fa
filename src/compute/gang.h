/* SPDX-License-Identifier: Apache-2.0 */
/* A gang: devices of one container whose kernels wait for each other, as those of an all-reduce do.
 * Such a kernel, when it runs far longer than its estimate, ends the same short time after a launch
 * was admitted that had been held back on another device, again and again. Independent kernels may
 * exceed their estimates too, but show no such time.
 *
 * Pure: no driver, no clock. The caller's lock guards it. Times are nanoseconds of
 * CLOCK_MONOTONIC. */
#ifndef VGPU_COMPUTE_GANG_H
#define VGPU_COMPUTE_GANG_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds. A gang is believed for 30 s; then launches are held back again as usual, and a gang
 * is found again by a few more ends. */
#define GANG_HOLDS_NS 30000000000ull

/* Nanoseconds. A kernel that exceeds its estimate by this waited for something: more than measuring
 * noise (0.1 ms), less than a wait at the gate (2 ms). */
#define GANG_OVER_NS 500000u

/* Begin with zeros. */
struct gang {
    uint64_t key;      /* of the kernel that is followed (compute/durations.h) */
    uint64_t after_ns; /* nanoseconds from the admission on the other device to its end */
    uint64_t seen_ns;  /* when it last ended so */
    unsigned score;
};

/* A kernel, or an interval that ends with it, exceeded its estimate by GANG_OVER_NS or more. It
 * ended at `at_ns`, `after_ns` after the last admission of a launch that had been held back on
 * another device since the kernel was due. True if it is a gang for certain by now. */
bool gang_judge(struct gang *gang, uint64_t key, uint64_t after_ns, uint64_t at_ns);

#endif
