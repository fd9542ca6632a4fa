/* SPDX-License-Identifier: Apache-2.0 */
/* test_create_3d_array: an array of three dimensions. */
#include "raw.h"

#define SIDE 1024u
#define ELEMENT_BYTES 16u
#define LAYER_BYTES ((uint64_t)SIDE * SIDE * ELEMENT_BYTES)

static CUarray array;

static CUresult take(uint64_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = {.Width = SIDE,
        .Height = SIDE,
        .Depth = bytes / LAYER_BYTES,
        .Format = CU_AD_FORMAT_FLOAT,
        .NumChannels = 4};
    return driver.cuArray3DCreate_v2(&array, &wanted);
}

static void use(uint64_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR got = {0};
    DRIVER_CALL(driver.cuArray3DGetDescriptor_v2(&got, array));
    raw_check(got.Width == SIDE && got.Height == SIDE && got.Depth == bytes / LAYER_BYTES,
        "it is an array of %zu by %zu by %zu", got.Width, got.Height, got.Depth);
}

static CUresult give(void)
{
    return driver.cuArrayDestroy(array);
}

int main(void)
{
    return raw_device_memory(&(struct raw_kind){.name = "cuArray3DCreate",
        .take = take,
        .use = use,
        .give = give,
        .largest = LAYER_BYTES * 16384});
}
