/* SPDX-License-Identifier: Apache-2.0 */
/* test_create_array: an array of two dimensions. */
#include "raw.h"

/* The largest that cards since Pascal take is 131072 by 65536 elements. */
#define WIDTH 131072u
#define ELEMENT_BYTES 16u
#define ROW_BYTES ((uint64_t)WIDTH * ELEMENT_BYTES)

static CUarray array;

static CUresult take(uint64_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR wanted = {.Width = WIDTH,
        .Height = bytes / ROW_BYTES,
        .Format = CU_AD_FORMAT_FLOAT,
        .NumChannels = 4};
    return driver.cuArrayCreate_v2(&array, &wanted);
}

static void use(uint64_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR got = {0};
    DRIVER_CALL(driver.cuArrayGetDescriptor_v2(&got, array));
    raw_check(got.Width == WIDTH && got.Height == bytes / ROW_BYTES && got.NumChannels == 4,
        "it is an array of %zu by %zu", got.Width, got.Height);
}

static CUresult give(void)
{
    return driver.cuArrayDestroy(array);
}

int main(void)
{
    return raw_device_memory(&(struct raw_kind){.name = "cuArrayCreate",
        .take = take,
        .use = use,
        .give = give,
        .largest = ROW_BYTES * 65536});
}
