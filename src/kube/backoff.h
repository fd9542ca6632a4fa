/* SPDX-License-Identifier: Apache-2.0 */
/* How long to wait before the next try: exponential, with jitter. Pure; no clock. */
#ifndef VGPU_KUBE_BACKOFF_H
#define VGPU_KUBE_BACKOFF_H

#include <stdint.h>

struct backoff {
    unsigned first_ms, max_ms;
    unsigned failures; /* in a row */
};

/* Counts a failure. The wait in ms: first_ms doubled with each failure before, at most max_ms, and
 * of that a part between one half and all, by `random`, so that many clients do not come together.
 */
unsigned backoff_next_ms(struct backoff *backoff, uint32_t random);

void backoff_reset(struct backoff *backoff);

/* A number for it, from the kernel. */
uint32_t backoff_random(void);

#endif
