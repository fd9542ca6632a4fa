/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that a program asks for may overflow when they are multiplied or added: these stop at the
 * largest value, which no limit lets pass. A difference stops at 0. */
#ifndef VGPU_BASE_SATURATING_H
#define VGPU_BASE_SATURATING_H

#include <stdint.h>

static inline uint64_t saturating_product(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t saturating_sum(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t saturating_difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

#endif
