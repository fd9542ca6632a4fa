/* SPDX-License-Identifier: Apache-2.0 */
/* What calls cost, one JSON object on stdout: medians and 10th and 90th percentiles in nanoseconds.
 * Run it with and without the library, alternating (bench/cost.py). Options: --refuse BYTES times a
 * cuMemAlloc that must be refused; --live N keeps N allocations of 256 KiB meanwhile. */
#include "../test/driver/driver.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 2001
static uint64_t samples[ROUNDS];
static const char *separator = "{";

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, unsigned count)
{
    qsort(samples, count, sizeof(samples[0]), ascending);
    printf("%s\"%s\": {\"p10\": %llu, \"p50\": %llu, \"p90\": %llu, \"n\": %u}", separator, name,
        (unsigned long long)samples[count / 10], (unsigned long long)samples[count / 2],
        (unsigned long long)samples[count * 9 / 10], count);
    separator = ",\n ";
}

static void alloc_and_free(const char *name, size_t bytes, unsigned rounds)
{
    CUdeviceptr pointer;
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = clock_now_ns();
        DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, bytes));
        DRIVER_CALL(driver.cuMemFree_v2(pointer));
        samples[i] = clock_now_ns() - start;
    }
    report(name, rounds);
}

static void async_pair(void)
{
    CUdeviceptr pointer;
    CUmemoryPool pool;
    uint64_t keep = UINT64_MAX;
    DRIVER_CALL(driver.cuDeviceGetDefaultMemPool(&pool, 0));
    DRIVER_CALL(driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_now_ns();
        DRIVER_CALL(driver.cuMemAllocAsync(&pointer, 1 << 20, NULL));
        DRIVER_CALL(driver.cuMemFreeAsync(pointer, NULL));
        samples[i] = clock_now_ns() - start;
    }
    DRIVER_CALL(driver.cuCtxSynchronize());
    report("cuMemAllocAsync+cuMemFreeAsync 1 MiB", ROUNDS);
}

static void mem_get_info(void)
{
    size_t free, total;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_now_ns();
        DRIVER_CALL(driver.cuMemGetInfo_v2(&free, &total));
        samples[i] = clock_now_ns() - start;
    }
    report("cuMemGetInfo", ROUNDS);
}

static void launch(void)
{
    CUmodule module;
    CUfunction nop;
    CUdeviceptr cell = 0;
    void *params[] = {&cell};
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&nop, module, "nop"));
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_now_ns();
        DRIVER_CALL(driver.cuLaunchKernel(nop, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        samples[i] = clock_now_ns() - start;
        if (i % 100 == 99)
            DRIVER_CALL(driver.cuCtxSynchronize());
    }
    DRIVER_CALL(driver.cuCtxSynchronize());
    report("cuLaunchKernel", ROUNDS);
}

static void refusal(size_t bytes)
{
    CUdeviceptr pointer;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_now_ns();
        CUresult result = driver.cuMemAlloc_v2(&pointer, bytes);
        samples[i] = clock_now_ns() - start;
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            driver_must(CUDA_ERROR_UNKNOWN, "a refusal was expected", __FILE__, __LINE__);
    }
    report("cuMemAlloc refused", ROUNDS);
}

static unsigned long option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (!strcmp(argv[i], name))
            return strtoul(argv[i + 1], NULL, 0);
    }
    return 0;
}

int main(int argc, char **argv)
{
    CUcontext context;
    size_t refuse = option(argc, argv, "--refuse");
    unsigned long live = option(argc, argv, "--live");
    if (!driver_load())
        return 77;
    uint64_t start = clock_now_ns();
    DRIVER_CALL(driver.cuInit(0));
    samples[0] = clock_now_ns() - start;
    report("cuInit", 1);
    start = clock_now_ns();
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    samples[0] = clock_now_ns() - start;
    report("first context", 1);
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    CUdeviceptr pointer;
    for (unsigned long i = 0; i < live; i++)
        DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 256 << 10));
    alloc_and_free("cuMemAlloc+cuMemFree 1 MiB", 1 << 20, ROUNDS);
    alloc_and_free("cuMemAlloc+cuMemFree 64 MiB", 64 << 20, 501);
    async_pair();
    mem_get_info();
    launch();
    if (refuse)
        refusal(refuse);
    puts("}");
    return 0;
}
