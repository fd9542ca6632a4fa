/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/chance.h"

#include <sys/random.h>
#include <time.h>

static uint64_t state = 0x9e3779b97f4a7c15u;

uint32_t bench_chance_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = (uint32_t)time(NULL);
    return seed ? seed : 1;
}

void bench_chance_begin(uint32_t seed)
{
    /* One step of splitmix64 (Steele, Lea, Flood 2014): seeds that are alike begin far apart. */
    uint64_t mixed = seed + 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    state = mixed ? mixed : 1;
}

uint64_t bench_chance(void)
{
    /* xorshift64, Marsaglia 2003 */
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
