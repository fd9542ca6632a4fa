/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc_pitch: rows that the driver pads; the padding counts. */
#include "raw.h"

#define ROW_BYTES 65536u

static CUdeviceptr pointer;
static size_t pitch;

static CUresult take(uint64_t bytes)
{
    return driver.cuMemAllocPitch_v2(&pointer, &pitch, ROW_BYTES, bytes / ROW_BYTES, 4);
}

static void use(uint64_t bytes)
{
    raw_check(pitch >= ROW_BYTES, "a row of %u bytes has a pitch of %zu", ROW_BYTES, pitch);
    raw_check_contents(pointer, bytes / ROW_BYTES * pitch);
}

static CUresult give(void)
{
    return driver.cuMemFree_v2(pointer);
}

int main(void)
{
    return raw_device_memory(
        &(struct raw_kind){.name = "cuMemAllocPitch", .take = take, .use = use, .give = give});
}
