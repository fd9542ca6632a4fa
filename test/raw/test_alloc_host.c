/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc_host: pinned host memory by cuMemAllocHost. */
#include "raw.h"

static void *memory;

static CUresult take(uint64_t bytes)
{
    return driver.cuMemAllocHost_v2(&memory, bytes);
}

static void use(uint64_t bytes)
{
    raw_check_host(memory, bytes);
}

static CUresult give(void)
{
    return driver.cuMemFreeHost(memory);
}

int main(void)
{
    return raw_host_memory(
        &(struct raw_kind){.name = "cuMemAllocHost", .take = take, .use = use, .give = give});
}
