/* SPDX-License-Identifier: Apache-2.0 */
/* test_vram_limit: allocates 100 MiB at a time until the device is full. Contexts and what the
 * driver takes for itself count, so less than the limit can be allocated; both are printed. */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>

#define STEP_BYTES (100 * RAW_MIB)
#define STEPS_MAX 65536 /* 6.5 TiB */

static CUdeviceptr held[STEPS_MAX];

static unsigned long long mib(uint64_t bytes)
{
    return bytes / RAW_MIB;
}

/* How many steps there was room for; *ret_refusal is what the last one got. */
static unsigned fill(CUresult *ret_refusal)
{
    unsigned steps = 0;
    *ret_refusal = CUDA_SUCCESS;
    while (steps < STEPS_MAX && *ret_refusal == CUDA_SUCCESS) {
        *ret_refusal = driver.cuMemAlloc_v2(&held[steps], STEP_BYTES);
        steps += *ret_refusal == CUDA_SUCCESS;
        if (*ret_refusal == CUDA_SUCCESS)
            printf("%llu MiB allocated\n", mib(steps * STEP_BYTES));
    }
    return steps;
}

static void check_full(uint64_t allocated, uint64_t contexts)
{
    uint64_t used = raw_used(), total = raw_total();
    raw_check(used <= total && used + STEP_BYTES > total,
        "refused at the limit and no earlier: %llu of %llu MiB are in use", mib(used), mib(total));
    raw_check(used >= allocated + contexts && used <= allocated + contexts + STEP_BYTES,
        "%llu MiB were allocated, and contexts hold %llu MiB", mib(allocated),
        mib(used - allocated));
}

int main(void)
{
    CUresult refusal;
    raw_begin();
    uint64_t contexts = raw_used();
    unsigned steps = fill(&refusal);
    raw_check_refused(refusal, "and 100 MiB more");
    if (raw_in_slice())
        check_full(steps * STEP_BYTES, contexts);
    else
        printf("%llu MiB were allocated\n", mib(steps * STEP_BYTES));
    if (!raw_in_slice())
        raw_check(steps > 0, "without a limit there was room");
    for (unsigned i = 0; i < steps; i++)
        DRIVER_CALL(driver.cuMemFree_v2(held[i]));
    if (raw_in_slice())
        raw_check(raw_used() == contexts, "given back, nothing of it counts");
    CUresult again = driver.cuMemAlloc_v2(&held[0], steps ? STEP_BYTES : RAW_MIB);
    raw_check(again == CUDA_SUCCESS, "the program goes on: %s", driver_error(again));
    if (again == CUDA_SUCCESS)
        DRIVER_CALL(driver.cuMemFree_v2(held[0]));
    return raw_end();
}
