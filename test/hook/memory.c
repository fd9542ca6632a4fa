/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken is charged, and what is given back is no longer, whoever frees it and how. */
#include "allocate.h"
#include "bed.h"

#include <pthread.h>

#define LIMIT "20GiB"
#define SIZE (96 * MIB)

/* The first small allocation of a context takes a block that may stay. */
static uint64_t start(void)
{
    bed_context(0);
    return allocation_charged();
}

BED_TEST("the region says which ledger counts", .limit = LIMIT)
{
    start();
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    CHECK_EQ(slot->ledger, strcmp(bed_ledger(), "rm") ? 2 : 1);
    bool fallen_back_on = !strcmp(bed_ledger(), "api") && !getenv("VGPU_LEDGER");
    CHECK_EQ(bed_stderr_lines("API ledger"), fallen_back_on);
}

BED_TEST("each kind is charged and given back", .limit = LIMIT)
{
    uint64_t before = start();
    for (unsigned k = 0; k < allocation_kind_count; k++) {
        const struct allocation_kind *kind = &allocation_kinds[k];
        uint64_t handle;
        if (!allocation_kind_exists(kind))
            continue;
        CHECK_EQ(kind->make(SIZE, &handle), CUDA_SUCCESS);
        uint64_t grown = allocation_charged() - before;
        /* A pool grows in steps, and levels add a third. */
        if (!CHECK(grown >= SIZE && grown <= SIZE + SIZE / 2))
            dprintf(STDOUT_FILENO, "# %s: %llu\n", kind->function, (unsigned long long)grown);
        CHECK_EQ(kind->drop(handle), CUDA_SUCCESS);
        if (!CHECK_EQ(allocation_charged(), before))
            dprintf(STDOUT_FILENO, "# %s after %s\n", kind->function, kind->release);
    }
}

BED_TEST("a context is charged and given back", .limit = LIMIT)
{
    uint64_t before = start();
    CUcontext second;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    uint64_t grown = allocation_charged() - before;
    CHECK(grown > 400 * MIB && grown < 600 * MIB);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a stack size that is made smaller gives back", .limit = LIMIT)
{
    uint64_t before = start(), threads = 132 * 2048;
    CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 32768), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, threads * (32768 - 1024));
    CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, threads * (4096 - 1024));
    CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

/* Handles of cuMemCreate and pools belong to no context. */
static const unsigned of_a_context[] = {0, 1, 5, 6, 7};

BED_TEST("a context that is destroyed gives back the memory in it", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUcontext second;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof(of_a_context) / sizeof(of_a_context[0]); i++)
        CHECK_EQ(allocation_kinds[of_a_context[i]].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a context that is destroyed gives back the managed memory in it", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUcontext second;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_kinds[2].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a released primary context gives back the memory in it", .limit = LIMIT)
{
    uint64_t handle;
    start();
    for (size_t i = 0; i < sizeof(of_a_context) / sizeof(of_a_context[0]); i++)
        CHECK_EQ(allocation_kinds[of_a_context[i]].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("a reset primary context gives back the memory in it", .limit = LIMIT)
{
    uint64_t handle;
    start();
    for (size_t i = 0; i < sizeof(of_a_context) / sizeof(of_a_context[0]); i++)
        CHECK_EQ(allocation_kinds[of_a_context[i]].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), bed_card_bytes(0));
}

BED_TEST("a reset primary context gives back the managed memory in it", .limit = LIMIT)
{
    uint64_t handle;
    start();
    CHECK_EQ(allocation_kinds[2].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), bed_card_bytes(0));
    CHECK(CU(cuMemFree_v2)(handle) != CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), bed_card_bytes(0));
}

BED_TEST("freeing what nobody allocated reaches the driver", .limit = LIMIT)
{
    uint64_t before = start();
    CHECK_EQ(CU(cuMemFree_v2)(0xdead0000ull), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemFreeAsync)(0xdead0000ull, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemFree_v2)(0), CUDA_SUCCESS); /* as the driver does */
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("freeing twice is the driver's error and gives back once", .limit = LIMIT)
{
    uint64_t before = start(), kept, handle;
    CHECK_EQ(allocation_kinds[0].make(SIZE, &kept), CUDA_SUCCESS);
    uint64_t with_one = allocation_charged();
    for (unsigned k = 0; k < 3; k++) {
        CHECK_EQ(allocation_kinds[k].make(SIZE, &handle), CUDA_SUCCESS);
        CHECK_EQ(allocation_kinds[k].drop(handle), CUDA_SUCCESS);
        CHECK(allocation_kinds[k].drop(handle) != CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), with_one);
    }
    CHECK_EQ(allocation_kinds[0].drop(kept), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

static void *free_in_thread(void *argument)
{
    CUcontext context = NULL, none = NULL;
    CU(cuDevicePrimaryCtxRetain)(&context, 0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&none), CUDA_SUCCESS);
    CHECK(none == NULL);
    CU(cuCtxSetCurrent)(context);
    CHECK_EQ(CU(cuMemFree_v2)(*(uint64_t *)argument), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("another thread may free", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    pthread_t thread;
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, free_in_thread, &handle) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(allocation_charged(), before);
}

static void *allocate_without_context(void *argument)
{
    CUdeviceptr pointer = 0;
    (void)argument;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE_MAX), CUDA_ERROR_INVALID_CONTEXT);
    return NULL;
}

BED_TEST("a thread without a context gets the driver's error and is not charged", .limit = LIMIT)
{
    uint64_t before = start();
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, allocate_without_context, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("another context of the device may free", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUcontext primary, second;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST(
    "stream-ordered memory may be freed at once, and other memory in stream order", .limit = LIMIT)
{
    uint64_t before = start();
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, SIZE, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CUmemoryPool pool;
    CHECK_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a handle's memory lives until its last reference and mapping are gone", .limit = LIMIT)
{
    uint64_t before = start();
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr address;
    CHECK_EQ(CU(cuMemCreate)(&handle, SIZE, &property, 0), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuMemAddressReserve)(&address, 2 * SIZE, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemMap)(address, SIZE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemMap)(address + SIZE, SIZE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)address), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemUnmap)(address, 2 * SIZE), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemRelease)(again), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    CHECK(CU(cuMemRelease)(again) != CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("arguments that are missing get the driver's error and charge nothing", .limit = LIMIT)
{
    uint64_t before = start();
    size_t pitch;
    CUarray array;
    CHECK_EQ(CU(cuMemAlloc_v2)(NULL, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(NULL, &pitch, 4096, 4096, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAllocManaged)(NULL, SIZE, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAllocAsync)(NULL, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuArrayCreate_v2)(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuArray3DCreate_v2)(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemCreate)(NULL, SIZE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemPoolCreate)(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("ten thousand live allocations are charged and given back", .limit = LIMIT)
{
    enum { COUNT = 10000 };
    static CUdeviceptr pointers[COUNT];
    uint64_t before = start();
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    __typeof__(cuMemFree_v2) *release = CU(cuMemFree_v2);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(alloc(&pointers[i], 512 + (size_t)i * 100) == CUDA_SUCCESS);
    CHECK(allocation_charged() - before > 4 * GIB);
    for (int i = COUNT - 1; i >= 0; i -= 2)
        REQUIRE(release(pointers[i]) == CUDA_SUCCESS);
    for (int i = 0; i < COUNT; i += 2)
        REQUIRE(release(pointers[i]) == CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
