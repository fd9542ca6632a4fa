/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc_managed: managed memory, which the limit counts whole, wherever its pages are. */
#include "raw.h"

#include <string.h>

static CUdeviceptr pointer;

static CUresult take(uint64_t bytes)
{
    return driver.cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
}

static void use(uint64_t bytes)
{
    unsigned char *host = (unsigned char *)(uintptr_t)pointer;
    raw_check_contents(pointer, bytes);
    host[bytes / 2] = 42;
    raw_check(host[bytes / 2] == 42, "the host writes and reads it");
}

static CUresult give(void)
{
    return driver.cuMemFree_v2(pointer);
}

int main(void)
{
    return raw_device_memory(&(struct raw_kind){
        .name = "cuMemAllocManaged", .take = take, .use = use, .give = give, .may_exceed = true});
}
