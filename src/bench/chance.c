/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/chance.h"

uint64_t bench_chance(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u; /* xorshift64, Marsaglia 2003 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void bench_shuffle(size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t other = bench_chance() % i, kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}
