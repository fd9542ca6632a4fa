/* SPDX-License-Identifier: Apache-2.0 */
/* More memory than the card has: what is served from mappings behaves as cuMemAlloc's memory, what
 * does not fit on the card or into the share lies on the host, and both together are held to the
 * limit exactly. */
#include "allocate.h"
#include "abi/nvml.h"
#include "bed.h"
#include "movable.h"
#include "sim/machine/machine.h"

#include <pthread.h>
#include <signal.h>

#define ON "CUDA_MEMORY_OVERSUBSCRIBE=true"

/* Longest wait of one process for another; shorter than a test's own time limit. */
#define HANG_MS 60000u
/* A card of 4 GiB, under a limit of 8. */
#define SMALL_CARD .limit = "8GiB", .sim = "h200,memory=4GiB"

static uint64_t resident(void)
{
    return usage()->bytes - usage()->spilled;
}

/* Different bytes at the beginning and the end of an allocation, and in its middle. */
static void write_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    uint64_t places[] = {0, bytes / 2 / 8 * 8, bytes - 8};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t mark = seed * 1000003ull + i;
        CHECK_EQ(CU(cuMemcpyHtoD_v2)(pointer + places[i], &mark, 8), CUDA_SUCCESS);
    }
}

static bool has_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    uint64_t places[] = {0, bytes / 2 / 8 * 8, bytes - 8}, mark;
    bool same = true;
    for (unsigned i = 0; i < 3; i++) {
        mark = 0;
        same &= CU(cuMemcpyDtoH_v2)(&mark, pointer + places[i], 8) == CUDA_SUCCESS &&
                mark == seed * 1000003ull + i;
    }
    return same;
}

/* ---- what it gives ---- */

BED_TEST("a container allocates up to its limit where the card is smaller", SMALL_CARD,
    .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    CUdeviceptr pointers[32];
    unsigned count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count < 32 && (result = CU(cuMemAlloc_v2)(&pointers[count], 512 * MIB)) == CUDA_SUCCESS)
        count++;
    CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(count, (8 * GIB - before) / (512 * MIB));
    CHECK_EQ(usage()->bytes, before + count * 512 * MIB);
    CHECK(bed_card_free(0) < PAGE); /* to the last block */
    CHECK_EQ(resident() - before, bed_card_bytes(0) - card);
    CHECK_EQ(bed_stderr_lines("OOM"), 1);
    for (unsigned i = 0; i < count; i++)
        write_marks(pointers[i], 512 * MIB, i);
    for (unsigned i = 0; i < count; i++)
        CHECK(has_marks(pointers[i], 512 * MIB, i));
    for (unsigned i = 0; i < count; i++)
        give(pointers[i]);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(bed_card_bytes(0), card);
}

BED_TEST("one allocation is larger than the card", SMALL_CARD, .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    CUdeviceptr pointer = take(6 * GIB);
    CHECK_EQ(usage()->bytes, before + 6 * GIB);
    CHECK(bed_card_free(0) < PAGE);
    /* A copy over the seam. */
    uint64_t seam = resident() - before;
    static unsigned char out[4096], in[4096];
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (unsigned char)(i * 31);
    CHECK_EQ(CU(cuMemcpyHtoD_v2)(pointer + seam - 1000, out, sizeof(out)), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemcpyDtoH_v2)(in, pointer + seam - 1000, sizeof(in)), CUDA_SUCCESS);
    CHECK(!memcmp(in, out, sizeof(in)));
    give(pointer);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(usage()->spilled, 0);
}

/* The simulator's page tables take nothing. The first call of each is that of the page that is
 * tried. */
static void spill_a_page_more(void)
{
    bed_context(0);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    CUdeviceptr pointer = take(5 * GIB);
    CHECK_EQ(sim_calls(SIM_FAILED), 1);
    CHECK_EQ(usage()->bytes, before + 5 * GIB);
    CHECK_EQ(resident() - before, bed_card_bytes(0) - card);
    CHECK(bed_card_free(0) >= PAGE && bed_card_free(0) < 2 * PAGE);
    write_marks(pointer, 5 * GIB, 1);
    CHECK(has_marks(pointer, 5 * GIB, 1));
    give(pointer);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(bed_card_bytes(0), card);
}

BED_TEST("a card that is too full to map what it gave backs a page less", .limit = "8GiB",
    .sim = "h200,memory=4GiB,fail=cuMemMap:2:2", .environment = {ON})
{
    spill_a_page_more();
}

BED_TEST("a card that is too full to give access to what it mapped backs a page less",
    .limit = "8GiB", .sim = "h200,memory=4GiB,fail=cuMemSetAccess:2:2", .environment = {ON})
{
    spill_a_page_more();
}

BED_TEST("a card that has room for less than all in one piece maps a page less of it",
    .limit = "8GiB", .sim = "h200,fail=cuMemMap:2:2", .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    CUdeviceptr pointer = take(GIB);
    CHECK_EQ(usage()->spilled, PAGE);
    CHECK_EQ(usage()->bytes, before + GIB);
    give(pointer);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("an error that is not for lack of memory is told as it is", .limit = "8GiB",
    .sim = "h200,memory=4GiB,fail=cuMemMap:2:719", .environment = {ON})
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(usage()->spilled, 0);
}

BED_TEST("what the driver does not unmap after a failure stays charged", .limit = "8GiB",
    .sim = "h200,memory=4GiB,fail=cuMemSetAccess:2:719,fail=cuMemUnmap:2:719,fail=cuMemUnmap:3:719",
    .environment = {ON})
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(usage()->bytes, before + 5 * GIB);
    CHECK(usage()->spilled > GIB);
    CHECK(resident() >= bed_card_bytes(0));
}

BED_TEST("a ratio gives the container a share of the card, filled to the last block",
    .limit = "8GiB", .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=2"})
{
    bed_context(0);
    CUdeviceptr first = take(3 * GIB);
    CHECK_EQ(usage()->spilled, 0);
    CUdeviceptr second = take(3 * GIB);
    CHECK_EQ(resident(), 4 * GIB);
    CUdeviceptr third = take(512 * MIB);
    CHECK_EQ(resident(), 4 * GIB);
    CHECK_EQ(bed_stderr_lines("OOM"), 0);
    give(first);
    CUdeviceptr fourth = take(GIB);
    CHECK(resident() >= 2 * GIB && resident() <= 4 * GIB); /* the others may be coming back */
    CHECK(second && third && fourth);
}

BED_TEST("the program sees its limit as the device's size", SMALL_CARD, .environment = {ON})
{
    size_t left, total;
    nvmlDevice_t device;
    nvmlMemory_t memory;
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    CHECK_EQ(total, 8 * GIB);
    CHECK_EQ(left, 8 * GIB - usage()->bytes);
    take(5 * GIB);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    CHECK_EQ(left, 8 * GIB - usage()->bytes);
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&total, 0), CUDA_SUCCESS);
    CHECK_EQ(total, 8 * GIB);
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    CHECK_EQ(memory.total, 8 * GIB);
    CHECK_EQ(memory.used, usage()->bytes);
}

static size_t told_free(void)
{
    size_t left = 0, total;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    return left;
}

BED_TEST("what is free is no more than the card and the host can give", SMALL_CARD,
    .environment = {ON, "VGPU_HOST_POOL=1g"})
{
    bed_context(0);
    CHECK_EQ(told_free(), bed_card_free(0) + GIB);
    take(4 * GIB);
    CHECK_EQ(told_free(), bed_card_free(0) + GIB - usage()->spilled);
    take(told_free() / PAGE * PAGE);
    CHECK_EQ(bed_stderr_lines("OOM"), 0);
    CHECK(told_free() < PAGE);
}

BED_TEST("what is free counts the share of the card alone", .limit = "8GiB",
    .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=4", "VGPU_HOST_POOL=1g"})
{
    bed_context(0);
    CHECK_EQ(told_free(), 2 * GIB - resident() + GIB);
}

BED_TEST("a driver that cannot spill is known before the first allocation", .limit = "8GiB",
    .sim = "h200,memory=4GiB,driver=470", .environment = {ON})
{
    size_t left, total;
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    CHECK(total <= 4 * GIB && left <= 4 * GIB);
}

BED_TEST("HAMi's and vgpu-controller's words all ask for it", SMALL_CARD,
    .environment = {"CUDA_MEM_OVERSOLD_0=true"})
{
    bed_context(0);
    take(5 * GIB);
    CHECK(usage()->spilled > GIB);
}

/* ---- bounds ---- */

BED_TEST("host memory beyond VGPU_HOST_POOL is refused, and the log says what is left", SMALL_CARD,
    .environment = {ON, "VGPU_HOST_POOL=1g"})
{
    bed_context(0);
    CUdeviceptr first = take(2 * GIB), pointer;
    CUdeviceptr second = take(2 * GIB);
    CHECK(usage()->spilled > 0 && usage()->spilled <= GIB);
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(bed_stderr_lines("VGPU_HOST_POOL leaves"), 1);
    uint64_t left = GIB - usage()->spilled;
    CUdeviceptr third = take(left);
    CHECK_EQ(usage()->spilled, GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    give(first);
    give(second);
    give(third);
    CHECK_EQ(usage()->spilled, 0);
}

BED_TEST("what cannot be backed as a whole is refused before any of it is", SMALL_CARD,
    .environment = {ON, "VGPU_HOST_POOL=1g"})
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t card = bed_card_bytes(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 6 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_stderr_lines("VGPU_HOST_POOL leaves 1024 MiB"), 1);
    CHECK_EQ(bed_card_bytes(0), card);
    CHECK_EQ(usage()->spilled, 0);
}

BED_TEST("a program cannot unmap what cuMemAlloc gave", SMALL_CARD, .environment = {ON})
{
    bed_context(0);
    CUdeviceptr large = take(100 * MIB), small = take(1000);
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuMemUnmap)(large, 100 * MIB), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemUnmap)(small / PAGE * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(usage()->bytes, before);
    give(large);
    give(small);
}

BED_TEST("a budget of nothing spills nothing", SMALL_CARD, .environment = {ON, "VGPU_HOST_POOL=0"})
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(bed_card_bytes(0), card);
    take(3 * GIB);
}

BED_TEST("without a limit the driver serves", .sim = "h200,memory=4GiB", .environment = {ON})
{
    CUdeviceptr pointer = 0, second = 0;
    CUipcMemHandle handle;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&second, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuIpcGetMemHandle)(&handle, second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(bed_stderr_lines("has no memory limit"), 1);
}

BED_TEST("a driver that cannot back it by the host serves alone, and one line says so",
    .limit = "8GiB", .sim = "h200,memory=4GiB,driver=470", .environment = {ON})
{
    CUdeviceptr pointer;
    size_t left, total;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_stderr_lines("the limit of physical memory is kept"), 1);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    CHECK(total <= 4 * GIB);
}

/* ---- as cuMemAlloc's memory ---- */

BED_TEST("addresses of a size that was freed are used again, and not all are kept",
    .limit = "20GiB", .environment = {ON})
{
    bed_context(0);
    give(take(2 * MIB)); /* and the page that is tried */
    uint64_t reserved = sim_calls("cuMemAddressReserve"), freed = sim_calls("cuMemAddressFree");
    for (unsigned i = 0; i < 100; i++)
        give(take(64 * MIB));
    CHECK_EQ(sim_calls("cuMemAddressReserve"), reserved + 1);
    CHECK_EQ(sim_calls("cuMemAddressFree"), freed);
    CUdeviceptr first = take(64 * MIB), second = take(64 * MIB);
    write_marks(first, 64 * MIB, 1);
    write_marks(second, 64 * MIB, 2);
    CHECK(has_marks(first, 64 * MIB, 1) && has_marks(second, 64 * MIB, 2));
    for (unsigned i = 0; i < 40; i++)
        give(take((65 + 2 * i) * MIB));
    CHECK_EQ(sim_calls("cuMemAddressFree"), freed + 25); /* 15 beside the block's are kept */
}

BED_TEST("small allocations share blocks of 2 MiB", .limit = "20GiB", .environment = {ON})
{
    static CUdeviceptr pointers[5000];
    bed_context(0);
    uint64_t before = usage()->bytes;
    for (unsigned i = 0; i < 5000; i++) {
        pointers[i] = take(1000);
        CHECK_EQ(pointers[i] % 512, 0);
    }
    /* 1,024 bytes each. */
    CHECK_EQ(usage()->bytes, before + (5000 * 1024 + PAGE - 1) / PAGE * PAGE);
    for (unsigned i = 0; i < 5000; i++)
        write_marks(pointers[i], 1000, i);
    for (unsigned i = 0; i < 5000; i++)
        CHECK(has_marks(pointers[i], 1000, i));
    for (unsigned i = 0; i < 5000; i++)
        give(pointers[(i * 7919) % 5000]);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("spilled memory tells of itself as device memory", SMALL_CARD, .environment = {ON})
{
    bed_context(0);
    CUcontext current, context = NULL;
    CHECK_EQ(CU(cuCtxGetCurrent)(&current), CUDA_SUCCESS);
    const uint64_t sizes[] = {6 * GIB + 12345, 1000, 3 * MIB};
    unsigned long long ids[3];
    for (unsigned i = 0; i < 3; i++) {
        CUdeviceptr pointer = take(sizes[i]), at = pointer + sizes[i] - 1, base;
        size_t bytes, range = 0;
        unsigned type = 0, managed = 7, ipc = 7;
        int ordinal = -1;
        CUdeviceptr start = 0, device = 0;
        CHECK_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, at), CUDA_SUCCESS);
        CHECK_EQ(base, pointer);
        CHECK_EQ(bytes, sizes[i]);
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID};
        void *values[] = {
            &type, &context, &ordinal, &start, &range, &managed, &ipc, &device, &ids[i]};
        CHECK_EQ(CU(cuPointerGetAttributes)(9, names, values, at), CUDA_SUCCESS);
        CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
        CHECK(context == current);
        CHECK_EQ(ordinal, 0);
        CHECK_EQ(start, pointer);
        CHECK_EQ(range, sizes[i]);
        CHECK_EQ(managed, 0);
        CHECK_EQ(ipc, 0);
        CHECK_EQ(device, at);
        type = 0;
        CHECK_EQ(
            CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CUDA_SUCCESS);
        CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
        unsigned yes = 1, no = 0;
        CHECK_EQ(CU(cuPointerSetAttribute)(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer),
            i ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS); /* the others begin on the host */
        CHECK_EQ(CU(cuPointerSetAttribute)(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer),
            CUDA_ERROR_NOT_SUPPORTED);
        void *host = &type;
        CHECK_EQ(CU(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at),
            CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    CHECK(usage()->spilled > 0);
}

BED_TEST("an address that no allocation has is nobody's", .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    CUdeviceptr large = take(3 * MIB), small = take(1000), freed = take(1000);
    give(freed);
    CUdeviceptr addresses[] = {large + 3 * MIB, large + 4 * MIB - 1, small + 1000, freed};
    for (unsigned i = 0; i < 4; i++) {
        CUdeviceptr base, at = addresses[i];
        size_t bytes;
        unsigned type = 7;
        int ordinal = 7;
        CUcontext context = (CUcontext)&base;
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
        void *values[] = {&type, &ordinal, &context};
        CHECK_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, at), CUDA_ERROR_NOT_FOUND);
        CHECK_EQ(CU(cuPointerGetAttribute)(&type, names[0], at), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(CU(cuPointerGetAttributes)(3, names, values, at), CUDA_SUCCESS);
        CHECK_EQ(type, 0);
        CHECK_EQ(ordinal, -2);
        CHECK(!context);
    }
    CHECK_EQ(CU(cuPointerGetAttribute)(
                 &addresses[0], CU_POINTER_ATTRIBUTE_RANGE_SIZE, large + 3 * MIB - 1),
        CUDA_SUCCESS);
}

BED_TEST("rows are as wide as the driver makes them", .limit = "8GiB", .environment = {ON})
{
    CUdeviceptr pointer;
    size_t pitch, bytes;
    bed_context(0);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1000, 3000, 4), CUDA_SUCCESS);
    CHECK_EQ(pitch, 1024);
    CHECK_EQ(CU(cuMemGetAddressRange_v2)(NULL, &bytes, pointer), CUDA_SUCCESS);
    CHECK_EQ(bytes, 3000 * 1024);
    give(pointer);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1000, 3000, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, NULL, 1000, 3000, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1ull << 40, 1ull << 40, 4) != CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAlloc_v2)(NULL, 100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
}

BED_TEST("a pointer is freed once, and only where it begins", .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    const uint64_t sizes[] = {1000, 5 * MIB};
    CUdeviceptr kept = take(2000);
    for (unsigned i = 0; i < 2; i++) {
        CUdeviceptr pointer = take(sizes[i]);
        CHECK_EQ(CU(cuMemFree_v2)(pointer + 512), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(CU(cuMemFree_v2)(pointer + 1), CUDA_ERROR_INVALID_VALUE);
        give(pointer);
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK_EQ(CU(cuMemFree_v2)(0), CUDA_SUCCESS);
    give(kept);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("memory goes with its context", SMALL_CARD, .environment = {ON})
{
    bed_context(0);
    CUcontext primary, second;
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CUdeviceptr of_primary = take(100 * MIB), small_of_primary = take(100);
    uint64_t with = usage()->bytes;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CUdeviceptr pointer = take(5 * GIB);
    CUdeviceptr small = take(100);
    CHECK(usage()->spilled > 0);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, with);
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuMemFree_v2)(small), CUDA_ERROR_INVALID_VALUE);
    write_marks(of_primary, 100 * MIB, 1);
    CHECK(has_marks(of_primary, 100 * MIB, 1));
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, bed_card_bytes(0));
    CHECK(usage()->bytes <= before);
    CHECK(CU(cuMemFree_v2)(small_of_primary) != CUDA_SUCCESS);
}

BED_TEST("memory goes with a context whose end reports that its work failed", .limit = "8GiB",
    .sim = "h200,failed-work", .environment = {ON})
{
    bed_context(0);
    CUcontext primary, second;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    take(GIB);
    take(100);
    CHECK_EQ(CU(cuCtxDestroy_v2)(primary), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(bed_card_bytes(0), card);
}

#define SWEPT 1500

static bool may_retain;

/* Makes the primary context again as soon as it is gone, and allocates in it. */
static void *retain_again(void *argument)
{
    CUcontext context;
    unsigned flags;
    int active = 1;
    while (!__atomic_load_n(&may_retain, __ATOMIC_ACQUIRE))
        sched_yield();
    while (active)
        CHECK_EQ(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUdeviceptr *pointers = argument;
    for (unsigned i = 0; i < 10; i++)
        pointers[i] = take(i % 2 ? 100 : 3 * MIB);
    return NULL;
}

/* The handle of a primary context stays the same. */
BED_TEST("a context that is made while another of its handle goes keeps its memory",
    .limit = "8GiB", .environment = {ON})
{
    pthread_t thread;
    CUdeviceptr pointers[10];
    bed_context(0);
    for (unsigned i = 0; i < SWEPT; i++)
        take(2 * MIB);
    take(100);
    REQUIRE(pthread_create(&thread, NULL, retain_again, pointers) == 0);
    __atomic_store_n(&may_retain, true, __ATOMIC_RELEASE);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    pthread_join(thread, NULL);
    bed_context(0);
    for (unsigned i = 0; i < 10; i++) {
        write_marks(pointers[i], i % 2 ? 100 : 3 * MIB, i);
        CHECK(has_marks(pointers[i], i % 2 ? 100 : 3 * MIB, i));
        give(pointers[i]);
    }
    CHECK(bed_card_bytes(0) <= usage()->bytes);
    CHECK(usage()->bytes < 2 * GIB); /* none of the former context's is left */
}

BED_TEST("memory of another context may be freed, and by another thread", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    CUcontext primary, second;
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CUdeviceptr pointer = take(10 * MIB), small = take(10);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    give(pointer);
    give(small);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("what is freed in stream order is gone when the stream has come there", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    CUdeviceptr pointer = take(10 * MIB);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before);
}

static bool may_go_on;

/* Takes the stream's time until may_go_on; 10 s at most. */
static void hold_up(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < 1000 && !__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE); i++)
        bed_sleep_ms(10);
}

BED_TEST("a free in stream order waits for nothing, and is done when its stream has come there",
    .limit = "8GiB", .environment = {ON})
{
    CUstream stream;
    bed_context(0);
    uint64_t before = usage()->bytes;
    CUdeviceptr pointer = take(10 * MIB), small = take(100);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc)(stream, hold_up, NULL), CUDA_SUCCESS);
    uint64_t waits = sim_calls("cuCtxSynchronize");
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(small, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(sim_calls("cuCtxSynchronize"), waits);
    CUdeviceptr other = take(2 * MIB);
    CHECK_EQ(usage()->bytes, before + 14 * MIB);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before + 2 * MIB);
    give(other);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("what is freed in stream order is waited for before memory is refused", .limit = "2GiB",
    .environment = {ON})
{
    CUstream stream;
    bed_context(0);
    CUdeviceptr pointer = take(GIB);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc)(stream, hold_up, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    give(take(GIB));
}

BED_TEST(
    "a capture puts off the frees of its own context alone", .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    CUcontext primary, second;
    CUstream stream;
    CUgraph graph;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    uint64_t before = usage()->bytes;
    CUdeviceptr pointer = take(10 * MIB), small = take(100);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    uint64_t with = usage()->bytes;
    CUdeviceptr kept = take(4 * MIB);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    give(pointer);
    give(small);
    CHECK_EQ(usage()->bytes, with + 4 * MIB - 12 * MIB);
    give(kept);
    CHECK_EQ(usage()->bytes, with + 4 * MIB - 12 * MIB);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    /* The other context has nothing to do with it. */
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    uint64_t waits = sim_calls("cuCtxSynchronize");
    pointer = take(6 * MIB);
    CHECK_EQ(sim_calls("cuCtxSynchronize"), waits);
    give(pointer);
    CHECK_EQ(usage()->bytes, with + 4 * MIB - 12 * MIB);
    CHECK_EQ(CU(cuCtxSetCurrent)(second), CUDA_SUCCESS);
    give(take(100));
    CHECK_EQ(usage()->bytes, with - 12 * MIB);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("a capture that goes with its stream or its context puts nothing off", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    CUcontext primary, second;
    CUstream stream, own;
    CUgraph graph;
    uint64_t before = usage()->bytes;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(
        CU(cuStreamBeginCapture_v2)(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(CU(cuStreamEndCapture)(own, NULL), CUDA_ERROR_INVALID_VALUE); /* it goes on */
    CUdeviceptr pointer = take(10 * MIB);
    give(pointer);
    CHECK_EQ(usage()->bytes, before + 10 * MIB);
    CHECK_EQ(CU(cuStreamEndCapture)(own, &graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(own, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamDestroy_v2)(own), CUDA_SUCCESS);
    give(take(4 * MIB));
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    give(take(4 * MIB));
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("a free breaks no capture, and is done after it", .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr pointer = take(10 * MIB), small = take(10), kept = take(20);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    give(pointer);
    give(small);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr during = take(4 * MIB);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before + 16 * MIB);
    give(during);
    give(kept);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    /* Also where nothing else is left, and after a capture that is spoilt. */
    pointer = take(10 * MIB);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    give(pointer);
    CHECK(CU(cuCtxSynchronize)() != CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(CU(cuMemFree_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(usage()->bytes, before);
}

BED_TEST("a legacy handle is refused, and one line says why", .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle allocation;
    CUdeviceptr pointer = take(10 * MIB), small = take(100);
    CHECK_EQ(CU(cuIpcGetMemHandle)(&handle, pointer), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(CU(cuIpcGetMemHandle)(&handle, small), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(bed_stderr_lines("cannot be shared between processes"), 1);
    CHECK_EQ(CU(cuMemRetainAllocationHandle)(&allocation, (void *)(uintptr_t)pointer),
        CUDA_ERROR_INVALID_VALUE);
}

BED_TEST("peers reach memory that is there and memory that comes", .limit = "8GiB",
    .sim = "h200,devices=2", .environment = {ON})
{
    CUcontext first, second;
    bed_context(1);
    CHECK_EQ(CU(cuCtxGetCurrent)(&second), CUDA_SUCCESS);
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&first), CUDA_SUCCESS);
    CUdeviceptr pointers[3] = {take(10 * MIB), take(100), 0};
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 7;
    CHECK_EQ(CU(cuMemGetAccess)(&flags, &location, pointers[0]), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(CU(cuCtxSetCurrent)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxEnablePeerAccess)(first, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(first), CUDA_SUCCESS);
    pointers[2] = take(30 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuMemGetAccess)(&flags, &location, pointers[i] / PAGE * PAGE), CUDA_SUCCESS);
        CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    CHECK_EQ(CU(cuCtxSetCurrent)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDisablePeerAccess)(first), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetAccess)(&flags, &location, pointers[0]), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

static unsigned long long access_of(CUdeviceptr pointer)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 7;
    CHECK_EQ(CU(cuMemGetAccess)(&flags, &location, pointer / PAGE * PAGE), CUDA_SUCCESS);
    return flags;
}

BED_TEST("a context gives up its own access alone, and takes it along", .limit = "8GiB",
    .sim = "h200,devices=2", .environment = {ON})
{
    CUcontext first, second, third;
    bed_context(1);
    CHECK_EQ(CU(cuCtxGetCurrent)(&second), CUDA_SUCCESS);
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&first), CUDA_SUCCESS);
    CUdeviceptr pointer = take(10 * MIB);
    CHECK_EQ(CU(cuCtxCreate_v2)(&third, 0, 1), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxEnablePeerAccess)(first, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxEnablePeerAccess)(first, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDisablePeerAccess)(first), CUDA_SUCCESS);
    CHECK_EQ(access_of(pointer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(CU(cuCtxDestroy_v2)(third), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQ(access_of(take(10 * MIB)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/* ---- ends ---- */

/* A card that is full has no room for another context: the parent's comes first. */
static void hold_spilled(void *argument)
{
    pid_t parent = getppid();
    (void)argument;
    for (unsigned i = 0; i < HANG_MS / 10; i++) {
        const struct vgpu_slot *slot = bed_region() ? bed_region_slot(parent) : NULL;
        if (slot && slot->usage[0].bytes && !slot->usage[0].pending)
            break;
        bed_sleep_ms(10);
    }
    bed_context(0);
    take(5 * GIB);
    take(100);
    for (;;)
        pause();
}

BED_TEST("a killed process leaves neither the card's memory nor the host's behind", SMALL_CARD,
    .environment = {ON, "VGPU_HOST_POOL=3g"})
{
    pid_t pid = bed_fork(hold_spilled, NULL);
    const struct vgpu_slot *slot;
    CUdeviceptr pointer;
    int status;
    bed_context(0);
    /* Its last allocation is small, a page beside the context's 518 MiB: all that is large is
     * there. */
    for (unsigned i = 0; i < HANG_MS / 10; i++) {
        slot = bed_region() ? bed_region_slot(pid) : NULL;
        if (slot && slot->usage[0].bytes > 5 * GIB + 518 * MIB && !slot->usage[0].pending &&
            slot->usage[0].spilled > GIB)
            break;
        bed_sleep_ms(10);
    }
    REQUIRE(slot != NULL && slot->usage[0].spilled > GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 3 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_SUCCESS);
    CHECK(usage()->spilled > GIB);
    give(pointer);
    CHECK_EQ(bed_region_bytes(0), usage()->bytes);
}

static CUdeviceptr inherited;

static void look_at_inherited(void *argument)
{
    unsigned type;
    (void)argument;
    CHECK(CU(cuMemFree_v2)(inherited) != CUDA_SUCCESS);
    CHECK(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inherited) !=
          CUDA_SUCCESS);
    exit(0);
}

BED_TEST("a forked child has none of it, and takes nothing away", SMALL_CARD, .environment = {ON})
{
    bed_context(0);
    inherited = take(5 * GIB);
    write_marks(inherited, 5 * GIB, 3);
    uint64_t bytes = usage()->bytes, on_host = usage()->spilled, card = bed_card_bytes(0);
    CHECK(bed_ended_well(bed_fork(look_at_inherited, NULL)));
    CHECK_EQ(usage()->bytes, bytes);
    CHECK_EQ(usage()->spilled, on_host);
    CHECK_EQ(bed_card_bytes(0), card);
    CHECK(has_marks(inherited, 5 * GIB, 3));
    give(inherited);
    CHECK_EQ(usage()->spilled, 0);
}

static void *churn(void *argument)
{
    CUcontext context;
    unsigned seed = (unsigned)(uintptr_t)argument;
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUdeviceptr held[8] = {0};
    uint64_t sizes[8];
    for (unsigned i = 0; i < 400; i++) {
        unsigned at = (i * 7 + seed) % 8;
        if (held[at]) {
            CHECK(has_marks(held[at], sizes[at], seed * 8 + at));
            give(held[at]);
        }
        sizes[at] = (i * 2654435761u + seed) % 3 ? 64 + i % 1000 * 8 : (i % 40 + 1) * 8 * MIB;
        held[at] = take(sizes[at]);
        write_marks(held[at], sizes[at], seed * 8 + at);
    }
    for (unsigned i = 0; i < 8; i++)
        give(held[i]);
    return NULL;
}

BED_TEST("threads that allocate and free at once keep each other's contents", .limit = "40GiB",
    .sim = "h200,memory=2GiB", .environment = {ON})
{
    pthread_t threads[4];
    bed_context(0);
    uint64_t before = usage()->bytes;
    for (uintptr_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(usage()->spilled, 0);
}

/* ---- off ---- */

BED_TEST("without it memory is the driver's own", .limit = "8GiB")
{
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle allocation;
    bed_context(0);
    CUdeviceptr pointer = take(10 * MIB);
    CHECK_EQ(CU(cuIpcGetMemHandle)(&handle, pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemRetainAllocationHandle)(&allocation, (void *)(uintptr_t)pointer),
        CUDA_ERROR_INVALID_VALUE);
    give(pointer);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 100), CUDA_SUCCESS);
    give(pointer);
    /* And no call of the driver is made that was not made before. */
    static const char *const mine[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap",
        "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuCtxSynchronize",
        "cuPointerGetAttribute", "cuCtxPushCurrent_v2"};
    for (size_t i = 0; i < sizeof(mine) / sizeof(mine[0]); i++)
        CHECK_EQ(sim_calls(mine[i]), 0);
    CHECK_EQ(sim_calls("cuMemAlloc_v2"), 2);
    CHECK_EQ(sim_calls("cuMemFree_v2"), 2);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
