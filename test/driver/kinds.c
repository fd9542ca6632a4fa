/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of device memory in turn: what the region counts beside what NVML says of this
 * process, as a table. Exit status 1 where they are not equal to the MiB (--tolerance MIB: more).
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)

static int64_t tolerance_bytes = 1 << 20;
static int64_t heap_bytes; /* sized, and counted by the API ledger before it is used */
static int different;
static CUdeviceptr cell;

static void row(const char *step)
{
    struct vgpu_usage usage = driver_region_usage();
    int64_t ours = (int64_t)(usage.bytes - usage.managed);
    int64_t theirs = driver_nvml_bytes(getpid());
    int64_t difference = ours - theirs;
    bool equal = difference < tolerance_bytes + heap_bytes && difference > -tolerance_bytes;
    /* NVML lists a process while it has a context. */
    if (theirs < 0) {
        printf("| %-44s | %9.2f | not listed |\n", step, (double)ours / MIB);
        return;
    }
    different += !equal;
    printf("| %-44s | %9.2f | %9.2f | %9.2f | %s |\n", step, (double)ours / MIB,
        (double)theirs / MIB, (double)usage.managed / MIB, equal ? "equal" : "DIFFERENT");
    fflush(stdout);
}

static void linear_memory(void)
{
    CUdeviceptr large, small, pitched;
    size_t pitch;
    DRIVER_CALL(driver.cuMemAlloc_v2(&large, 100 << 20));
    row("cuMemAlloc of 100 MiB");
    DRIVER_CALL(driver.cuMemAlloc_v2(&small, 1000));
    row("and of 1,000 bytes");
    DRIVER_CALL(driver.cuMemFree_v2(small));
    DRIVER_CALL(driver.cuMemFree_v2(large));
    row("both freed");
    DRIVER_CALL(driver.cuMemAllocPitch_v2(&pitched, &pitch, 1000, 10000, 4));
    row("cuMemAllocPitch of 1,000 bytes x 10,000");
    DRIVER_CALL(driver.cuMemFree_v2(pitched));
    row("freed");
}

static void managed_memory(void)
{
    CUdeviceptr managed;
    DRIVER_CALL(driver.cuMemAllocManaged(&managed, 64 << 20, CU_MEM_ATTACH_GLOBAL));
    row("cuMemAllocManaged of 64 MiB");
    DRIVER_CALL(driver.cuMemFree_v2(managed));
    row("freed");
}

static void pooled_memory(void)
{
    CUdeviceptr pointer;
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    DRIVER_CALL(driver.cuMemAllocAsync(&pointer, 200 << 20, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    row("cuMemAllocAsync of 200 MiB");
    DRIVER_CALL(driver.cuMemFreeAsync(pointer, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    row("cuMemFreeAsync and synchronise");
    DRIVER_CALL(driver.cuMemPoolCreate(&pool, &props));
    DRIVER_CALL(driver.cuMemAllocFromPoolAsync(&pointer, 50 << 20, pool, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    row("cuMemAllocFromPoolAsync of 50 MiB");
    DRIVER_CALL(driver.cuMemFreeAsync(pointer, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    DRIVER_CALL(driver.cuMemPoolDestroy(pool));
    row("freed, pool destroyed");
}

static void array_memory(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 256, .Height = 256, .Depth = 128, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR levels = {
        .Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUmipmappedArray mipmap;
    DRIVER_CALL(driver.cuArrayCreate_v2(&array, &flat));
    row("array of 64 MiB");
    DRIVER_CALL(driver.cuArrayDestroy(array));
    DRIVER_CALL(driver.cuArray3DCreate_v2(&array, &deep));
    row("3-D array of 32 MiB");
    DRIVER_CALL(driver.cuArrayDestroy(array));
    DRIVER_CALL(driver.cuMipmappedArrayCreate(&mipmap, &levels, 5));
    row("mipmapped array, 5 levels from 64 MiB");
    DRIVER_CALL(driver.cuMipmappedArrayDestroy(mipmap));
    row("destroyed");
}

static CUmemAllocationProp vmm_property(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

static void virtual_memory(void)
{
    CUmemAllocationProp property = vmm_property();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUmemAccessDesc access = {
        .location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER_CALL(driver.cuMemCreate(&handle, 128 << 20, &property, 0));
    row("cuMemCreate of 128 MiB");
    DRIVER_CALL(driver.cuMemAddressReserve(&address, 128 << 20, 0, 0, 0));
    DRIVER_CALL(driver.cuMemMap(address, 128 << 20, 0, handle, 0));
    DRIVER_CALL(driver.cuMemSetAccess(address, 128 << 20, &access, 1));
    DRIVER_CALL(driver.cuMemRelease(handle));
    row("mapped, handle released");
    DRIVER_CALL(driver.cuMemUnmap(address, 128 << 20));
    DRIVER_CALL(driver.cuMemAddressFree(address, 128 << 20));
    row("unmapped");
}

static void graph_memory(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 64 << 20};
    DRIVER_CALL(driver.cuGraphCreate(&graph, 0));
    DRIVER_CALL(driver.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    DRIVER_CALL(driver.cuGraphInstantiateWithFlags(
        &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    DRIVER_CALL(driver.cuGraphLaunch(exec, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    row("graph with a 64 MiB allocation, launched");
    DRIVER_CALL(driver.cuGraphExecDestroy(exec));
    DRIVER_CALL(driver.cuGraphDestroy(graph));
    DRIVER_CALL(driver.cuDeviceGraphMemTrim(0));
    row("graph destroyed, memory trimmed");
}

static void module_memory(void)
{
    CUmodule module;
    CUfunction big;
    void *params[] = {&cell};
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    row("module loaded");
    DRIVER_CALL(driver.cuMemAlloc_v2(&cell, 4096));
    DRIVER_CALL(driver.cuMemsetD8_v2(cell, 0, 4096));
    DRIVER_CALL(driver.cuModuleGetFunction(&big, module, "big"));
    DRIVER_CALL(driver.cuLaunchKernel(big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    row("kernel with 32 KiB of local memory launched");
    DRIVER_CALL(driver.cuMemFree_v2(cell));
    DRIVER_CALL(driver.cuModuleUnload(module));
    row("module unloaded");
    if (tolerance_bytes > 1 << 20)
        heap_bytes = 320 << 20;
    DRIVER_CALL(driver.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 256 << 20));
    row("malloc heap of 256 MiB");
    DRIVER_CALL(driver.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 64 << 20));
    row("printf buffer of 64 MiB");
}

/* Exported memory is not free while its descriptor is open, whoever freed it. */
static void shared_memory(void)
{
    CUmemAllocationProp property = vmm_property();
    CUmemGenericAllocationHandle handle, imported;
    int fd;
    DRIVER_CALL(driver.cuMemCreate(&handle, 128 << 20, &property, 0));
    DRIVER_CALL(driver.cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    row("cuMemCreate of 128 MiB, exported");
    DRIVER_CALL(driver.cuMemImportFromShareableHandle(
        &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    row("and imported in the same process");
    DRIVER_CALL(driver.cuMemRelease(imported));
    row("import released");
    close(fd);
    DRIVER_CALL(driver.cuMemRelease(handle));
    row("descriptor closed, handle released");
}

int main(int argc, char **argv)
{
    CUcontext context, second;
    CUdeviceptr left;
    if (argc > 2 && !strcmp(argv[1], "--tolerance"))
        tolerance_bytes = strtoll(argv[2], NULL, 10) << 20;
    if (!driver_load())
        return 77;
    DRIVER_CALL(driver.cuInit(0));
    printf("| %-44s | %9s | %9s | %9s |           |\n", "after", "ledger", "NVML", "managed");
    printf("| --- | --- | --- | --- | --- |\n");
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    row("first context");
    linear_memory();
    managed_memory();
    pooled_memory();
    array_memory();
    virtual_memory();
    shared_memory();
    graph_memory();
    module_memory();
    DRIVER_CALL(driver.cuCtxCreate_v2(&second, 0, 0));
    row("second context");
    DRIVER_CALL(driver.cuMemAlloc_v2(&left, 48 << 20));
    DRIVER_CALL(driver.cuMemAllocManaged(&left, 32 << 20, CU_MEM_ATTACH_GLOBAL));
    row("48 MiB and 32 MiB managed in it");
    DRIVER_CALL(driver.cuCtxDestroy_v2(second));
    row("destroyed with all that it held");
    if (driver_region_usage().managed) {
        printf("managed memory outlived its context\n");
        different++;
    }
    DRIVER_CALL(driver.cuDevicePrimaryCtxRelease_v2(0));
    row("primary context released");
    printf("%d of the steps above are different\n", different);
    return different != 0;
}
