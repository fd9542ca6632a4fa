/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_alloc: pinned host memory by cuMemHostAlloc, which the device has an address of. */
#include "raw.h"

static void *memory;

static CUresult take(uint64_t bytes)
{
    return driver.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

static void use(uint64_t bytes)
{
    CUdeviceptr device = 0;
    raw_check_host(memory, bytes);
    DRIVER_CALL(driver.cuMemHostGetDevicePointer_v2(&device, memory, 0));
    raw_check(device != 0, "the device has an address of it");
}

static CUresult give(void)
{
    return driver.cuMemFreeHost(memory);
}

int main(void)
{
    return raw_host_memory(
        &(struct raw_kind){.name = "cuMemHostAlloc", .take = take, .use = use, .give = give});
}
