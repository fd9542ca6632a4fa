/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of pool in turn: what the ledger, NVML, cuMemGetInfo and the pool itself say after it
 * is made, has allocated, was touched, was freed and trimmed, as a table. To be run with a memory
 * limit of a few GiB; exit status 1 where a promise is broken: pools of device and managed memory
 * are held to the limit, pools of the host are not and count nowhere, and after the trim nothing is
 * left. What this driver has no pools of is named. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define STEP (128 * MIB)
#define STEPS_MAX 128
#define BEYOND (512 * MIB) /* that a pool without a limit is tried by */

static int broken;
static CUstream stream;

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t bytes = 0;
    return pool && driver.cuMemPoolGetAttribute(pool, attribute, &bytes) == CUDA_SUCCESS ? bytes
                                                                                         : 0;
}

static uint64_t used_bytes(void)
{
    size_t free_bytes = 0, total = 0;
    DRIVER_CALL(driver.cuMemGetInfo_v2(&free_bytes, &total));
    return total - free_bytes;
}

static void row(const char *step, CUmemoryPool pool)
{
    uint64_t shown = used_bytes();
    struct vgpu_usage usage = driver_region_usage();
    printf("| %-28s | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f |\n", step,
        mib(usage.bytes - usage.managed), mib(usage.managed),
        (double)driver_nvml_bytes(getpid()) / (double)MIB, mib(shown),
        mib(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)),
        mib(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
    fflush(stdout);
}

static void promise(const char *pool, const char *what, bool kept)
{
    if (kept)
        return;
    printf("BROKEN: %s: %s\n", pool, what);
    broken++;
}

struct kind {
    const char *name;
    CUmemAllocationType type;
    CUmemLocation location;
    bool is_default;
    bool limited;
};

static void settle(CUmemoryPool pool)
{
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    DRIVER_CALL(driver.cuMemPoolTrimTo(pool, 0));
}

/* Memory of the host is not the device's to write to before it is told so. */
static void give_access(const struct kind *kind, CUmemoryPool pool)
{
    CUmemAccessDesc access = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (kind->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
        kind->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        DRIVER_CALL(driver.cuMemPoolSetAccess(pool, &access, 1));
}

static void one_allocation(const struct kind *kind, CUmemoryPool pool)
{
    CUdeviceptr pointer;
    uint64_t before = used_bytes();
    row("made", pool);
    DRIVER_CALL(driver.cuMemAllocFromPoolAsync(&pointer, STEP, pool, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    row("128 MiB allocated", pool);
    uint64_t grown = used_bytes() - before;
    promise(kind->name, "an allocation counts, where it is limited",
        kind->limited ? grown >= STEP : grown == 0);
    DRIVER_CALL(driver.cuMemsetD32Async(pointer, 1, STEP / 4, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    row("touched by a memset", pool);
    grown = used_bytes() - before;
    promise(kind->name, "it counts once when it has been touched",
        kind->limited ? grown >= STEP && grown < 2 * STEP : grown == 0);
    DRIVER_CALL(driver.cuMemFreeAsync(pointer, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    row("freed", pool);
    DRIVER_CALL(driver.cuMemPoolTrimTo(pool, 0));
    row("trimmed", pool);
    promise(kind->name, "nothing is left after the trim", used_bytes() == before);
}

static void fill(const struct kind *kind, CUmemoryPool pool, uint64_t total)
{
    CUdeviceptr pointers[STEPS_MAX];
    CUresult result = CUDA_SUCCESS;
    uint64_t before = used_bytes();
    size_t count = 0;
    while (count < STEPS_MAX && count * STEP < total + BEYOND &&
           (result = driver.cuMemAllocFromPoolAsync(&pointers[count], STEP, pool, stream)) ==
               CUDA_SUCCESS)
        count++;
    row("filled", pool);
    printf(
        "%s: %.0f MiB allocated, then: %s\n", kind->name, mib(count * STEP), driver_error(result));
    promise(kind->name, "it is held to the limit, if it is limited",
        kind->limited ? result == CUDA_ERROR_OUT_OF_MEMORY && count * STEP < total
                      : result == CUDA_SUCCESS);
    while (count-- > 0)
        DRIVER_CALL(driver.cuMemFreeAsync(pointers[count], stream));
    settle(pool);
    promise(kind->name, "nothing is left of what filled it", used_bytes() == before);
}

/* What the driver takes at a first memset is taken before anything is measured. */
static void warm_up(void)
{
    CUdeviceptr pointer;
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, MIB));
    DRIVER_CALL(driver.cuMemsetD32Async(pointer, 1, MIB / 4, stream));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
}

static CUresult get(const struct kind *kind, CUmemoryPool *ret_pool)
{
    CUmemPoolProps props = {.allocType = kind->type, .location = kind->location};
    CUmemLocation location = kind->location;
    if (!kind->is_default)
        return driver.cuMemPoolCreate(ret_pool, &props);
    return driver.cuMemGetDefaultMemPool
               ? driver.cuMemGetDefaultMemPool(ret_pool, &location, kind->type)
               : CUDA_ERROR_NOT_SUPPORTED;
}

static void try_kind(const struct kind *kind, uint64_t total)
{
    CUmemoryPool pool = NULL;
    CUresult result = get(kind, &pool);
    printf("\n%s\n", kind->name);
    if (result != CUDA_SUCCESS) {
        printf("the driver has none: %s\n", driver_error(result));
        return;
    }
    printf("| %-28s | %9s | %9s | %9s | %9s | %9s | %9s |\n", "after", "ledger", "managed", "NVML",
        "shown", "reserved", "in use");
    printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    give_access(kind, pool);
    one_allocation(kind, pool);
    fill(kind, pool, total);
    if (!kind->is_default)
        DRIVER_CALL(driver.cuMemPoolDestroy(pool));
}

int main(void)
{
#define PINNED CU_MEM_ALLOCATION_TYPE_PINNED
#define MANAGED CU_MEM_ALLOCATION_TYPE_MANAGED
    static const struct kind kinds[] = {
        {"device memory", PINNED, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, false, true},
        {"host memory", PINNED, {CU_MEM_LOCATION_TYPE_HOST, 0}, false, false},
        {"host memory of a NUMA node", PINNED, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, false, false},
        {"host memory, default", PINNED, {CU_MEM_LOCATION_TYPE_HOST, 0}, true, false},
        {"managed memory", MANAGED, {CU_MEM_LOCATION_TYPE_NONE, 0}, false, true},
        {"managed memory, device", MANAGED, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, false, true},
        {"managed memory, host", MANAGED, {CU_MEM_LOCATION_TYPE_HOST, 0}, false, true},
        {"managed memory, default", MANAGED, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, true, true},
    };
    size_t free_bytes, total;
    if (!driver_load())
        return 77;
    (void)driver_enter();
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    warm_up();
    DRIVER_CALL(driver.cuMemGetInfo_v2(&free_bytes, &total));
    if (total > (STEPS_MAX - 8) * STEP) {
        printf("SKIP: a memory limit of %.0f MiB at most is needed\n", mib((STEPS_MAX - 8) * STEP));
        return 77;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        try_kind(&kinds[i], total);
    printf("\n%d promises are broken\n", broken);
    return broken != 0;
}
