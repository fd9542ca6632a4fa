/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of which there is a dma-buf: the kernel keeps it until the last descriptor is
 * closed, whatever its owner frees, and so long it counts. */
#include "allocate.h"
#include "bed.h"

#include <fcntl.h>

#define LIMIT "4GiB"
#define SIZE (256 * MIB)

static CUresult export_range(int *ret_fd, CUdeviceptr address, size_t bytes)
{
    return CU(cuMemGetHandleForAddressRange)(
        ret_fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

/* Allocates, exports and frees until it is refused; returns how often that went well. */
static int fill(CUresult (*make)(CUdeviceptr *address), void (*drop)(CUdeviceptr address),
    size_t bytes, int *fds, int most)
{
    int count = 0;
    CUdeviceptr address;
    while (count < most && make(&address) == CUDA_SUCCESS) {
        CHECK_EQ(export_range(&fds[count], address, bytes), CUDA_SUCCESS);
        count++;
        drop(address);
    }
    return count;
}

static CUresult make_linear(CUdeviceptr *address)
{
    return CU(cuMemAlloc_v2)(address, SIZE);
}

static void drop_linear(CUdeviceptr address)
{
    CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
}

/* Two handles, mapped behind each other and released. */
static CUresult make_mapped(CUdeviceptr *address)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    CUresult result = CUDA_SUCCESS;
    CHECK_EQ(CU(cuMemAddressReserve)(address, SIZE, 0, 0, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        result = CU(cuMemCreate)(&handle, SIZE / 2, &property, 0);
        if (result != CUDA_SUCCESS)
            break;
        CHECK_EQ(CU(cuMemMap)(*address + i * (SIZE / 2), SIZE / 2, 0, handle, 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    }
    return result;
}

static void drop_mapped(CUdeviceptr address)
{
    CHECK_EQ(CU(cuMemUnmap)(address, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAddressFree)(address, SIZE), CUDA_SUCCESS);
}

enum { MOST = 64 };

static void check_filled(const int *fds, int count, uint64_t before)
{
    CUdeviceptr address;
    CHECK(bed_card_bytes(0) <= 4 * GIB);
    CHECK(count > 8 && count < 16);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    CHECK_EQ(CU(cuMemAlloc_v2)(&address, 3 * GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK(allocation_charged() < before + SIZE);
}

BED_TEST("a dma-buf of memory that is freed does not make it free", .limit = LIMIT)
{
    int fds[MOST];
    bed_context(0);
    uint64_t before = allocation_charged();
    int count = fill(make_linear, drop_linear, SIZE, fds, MOST);
    check_filled(fds, count, before);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("nor does one of mappings that are taken away", .limit = LIMIT)
{
    int fds[MOST];
    bed_context(0);
    uint64_t before = allocation_charged();
    int count = fill(make_mapped, drop_mapped, SIZE, fds, MOST);
    check_filled(fds, count, before);
}

/* As many descriptors on one mapping as its parts. */
BED_TEST("nor do some of parts of it, the last of which is closed last", .limit = LIMIT)
{
    enum { PARTS = 4 };
    int fds[PARTS];
    CUdeviceptr address, other;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuMemAlloc_v2)(&address, 2 * GIB), CUDA_SUCCESS);
    for (int i = 0; i < PARTS; i++)
        CHECK_EQ(export_range(&fds[i], address + i * SIZE, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
    for (int i = 0; i < PARTS; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&other, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(allocation_charged(), before + 2 * GIB);
        close(fds[i]);
    }
    CHECK_EQ(CU(cuMemAlloc_v2)(&other, 2 * GIB), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + 2 * GIB);
}

/* The driver serves them from a block of 2 MiB, all of which the kernel keeps. */
BED_TEST("nor do dma-bufs of small allocations", .limit = LIMIT)
{
    enum { COUNT = 64 };
    int fds[COUNT];
    CUdeviceptr address;
    bed_context(0);
    uint64_t charged = allocation_charged(), card = bed_card_bytes(0);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&address, 64 << 10), CUDA_SUCCESS);
        CHECK_EQ(export_range(&fds[i], address, 64 << 10), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
    }
    CHECK(bed_card_bytes(0) >= card + COUNT * 2 * MIB);
    CHECK(allocation_charged() - charged >= bed_card_bytes(0) - card);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    CHECK_EQ(CU(cuMemAlloc_v2)(&address, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY); /* looks for them */
    CHECK(allocation_charged() <= charged + 2 * MIB);
}

BED_TEST("a dma-buf that is closed before the memory is freed keeps nothing", .limit = LIMIT)
{
    CUdeviceptr address;
    int fd;
    bed_context(0);
    uint64_t before = allocation_charged();
    for (int i = 0; i < 32; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&address, SIZE), CUDA_SUCCESS);
        CHECK_EQ(export_range(&fd, address, SIZE), CUDA_SUCCESS);
        close(fd);
        CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
    }
}

BED_TEST("what has no dma-buf gets the driver's answer", .limit = LIMIT)
{
    CUdeviceptr managed, address;
    void *host;
    int fd = -2;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&address, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocManaged)(&managed, SIZE, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemHostAlloc)(&host, 1 << 20, 0), CUDA_SUCCESS);
    CHECK_EQ(export_range(&fd, managed, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(&fd, (uintptr_t)host, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(&fd, 4096, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(&fd, address, 2 * SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(&fd, address + 1, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(&fd, address, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(export_range(NULL, address, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(fd, -2);
    CHECK_EQ(CU(cuMemFree_v2)(address), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
