/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/backoff.h"

#include <sys/random.h>

unsigned backoff_next_ms(struct backoff *backoff, uint32_t random)
{
    uint64_t wait = backoff->first_ms;
    for (unsigned i = 0; i < backoff->failures && wait < backoff->max_ms; i++)
        wait *= 2;
    if (wait > backoff->max_ms)
        wait = backoff->max_ms;
    if (backoff->failures < UINT32_MAX)
        backoff->failures++;
    uint64_t half = wait / 2;
    return (unsigned)(wait - half + ((half + 1) * random >> 32));
}

void backoff_reset(struct backoff *backoff)
{
    backoff->failures = 0;
}

uint32_t backoff_random(void)
{
    uint32_t random = 0;
    /* It fails only before the kernel has any randomness: then there is no jitter. */
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return random;
}
