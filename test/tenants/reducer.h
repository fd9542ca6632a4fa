/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of `reduce` write down for a test. */
#ifndef VGPU_TEST_REDUCE_H
#define VGPU_TEST_REDUCE_H

#include <stdint.h>

#define REDUCE_RANKS_MAX 16u
#define REDUCE_CHUNK 8u
/* One all-reduce of 256 MiB over two H200s. */
#define REDUCE_US 930u

struct reduce_counts {
    uint64_t reduces[REDUCE_RANKS_MAX]; /* done, by rank */
};

#endif
