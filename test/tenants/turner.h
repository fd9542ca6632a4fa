/* SPDX-License-Identifier: Apache-2.0 */
/* What `turner` writes down for a test, and is told by it. */
#ifndef VGPU_TEST_TURNER_H
#define VGPU_TEST_TURNER_H

#include <stdint.h>

#define TURNERS_MAX 8

enum turner_order {
    TURNER_WORK,
    TURNER_HALF,     /* read the younger half only */
    TURNER_GRAPHS,   /* the same, with a graph in each round */
    TURNER_PREFETCH, /* asks for the younger half on the card, and rests */
    TURNER_ADVISE,   /* the same by cuMemAdvise */
    TURNER_REST,
    TURNER_HANG,
    TURNER_FORK,
    TURNER_EXIT
};

struct turner {
    uint64_t rounds;     /* done */
    uint64_t round_ns;   /* when the last one ended */
    uint64_t longest_ns; /* the longest that one took */
    uint64_t faults;     /* bytes that were not what was written, and calls that failed */
    uint32_t order;      /* enum turner_order */
};

struct turners {
    struct turner list[TURNERS_MAX];
};

#endif
