/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc: linear memory. */
#include "raw.h"

static CUdeviceptr pointer;

static CUresult take(uint64_t bytes)
{
    return driver.cuMemAlloc_v2(&pointer, bytes);
}

static void use(uint64_t bytes)
{
    raw_check_contents(pointer, bytes);
}

static CUresult give(void)
{
    return driver.cuMemFree_v2(pointer);
}

int main(void)
{
    return raw_device_memory(
        &(struct raw_kind){.name = "cuMemAlloc", .take = take, .use = use, .give = give});
}
