/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses the driver's allocations of device memory from the first, the second, ... on, each time
 * in a process of its own (test/driver/rm_fail.c does it), and prints which calls answered what.
 * Clean CUDA errors, no crash, and afterwards the process allocates and frees as before: exit
 * status 0. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTEMPTS_MAX 200

static unsigned failures;

/* Goes on after a failure, as a program that caught it would. */
static bool call(CUresult result, const char *name)
{
    if (result != CUDA_SUCCESS)
        printf("%s %.*s %s", failures++ ? ";" : "", (int)strcspn(name + 7, "("), name + 7,
            driver_error(result));
    return result == CUDA_SUCCESS;
}

#define CALL(x) call((x), #x)

static void linear(void)
{
    CUdeviceptr pointer = 0;
    size_t pitch;
    if (CALL(driver.cuMemAlloc_v2(&pointer, 64 << 20)))
        CALL(driver.cuMemFree_v2(pointer));
    if (CALL(driver.cuMemAlloc_v2(&pointer, 1000)))
        CALL(driver.cuMemFree_v2(pointer));
    if (CALL(driver.cuMemAllocPitch_v2(&pointer, &pitch, 1000, 10000, 4)))
        CALL(driver.cuMemFree_v2(pointer));
    if (CALL(driver.cuMemAllocAsync(&pointer, 64 << 20, NULL)))
        CALL(driver.cuMemFreeAsync(pointer, NULL));
    CALL(driver.cuCtxSynchronize());
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR levels = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUmipmappedArray mipmap;
    if (CALL(driver.cuArrayCreate_v2(&array, &flat)))
        CALL(driver.cuArrayDestroy(array));
    if (CALL(driver.cuMipmappedArrayCreate(&mipmap, &levels, 5)))
        CALL(driver.cuMipmappedArrayDestroy(mipmap));
}

static void virtual_memory(void)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    if (CALL(driver.cuMemCreate(&handle, 64 << 20, &property, 0)))
        CALL(driver.cuMemRelease(handle));
}

static void graphs(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 64 << 20};
    if (!CALL(driver.cuGraphCreate(&graph, 0)))
        return;
    if (CALL(driver.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params)) &&
        CALL(driver.cuGraphInstantiateWithFlags(
            &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))) {
        CALL(driver.cuGraphLaunch(exec, NULL));
        CALL(driver.cuCtxSynchronize());
        CALL(driver.cuGraphExecDestroy(exec));
    }
    CALL(driver.cuGraphDestroy(graph));
}

static void kernels(void)
{
    CUmodule module;
    CUfunction big;
    CUdeviceptr cell;
    void *params[] = {&cell};
    if (!CALL(driver.cuModuleLoadData(&module, driver_ptx)))
        return;
    if (CALL(driver.cuMemAlloc_v2(&cell, 4096))) {
        CALL(driver.cuMemsetD8_v2(cell, 0, 4096));
        if (CALL(driver.cuModuleGetFunction(&big, module, "big")))
            CALL(driver.cuLaunchKernel(big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
        CALL(driver.cuCtxSynchronize());
        CALL(driver.cuMemFree_v2(cell));
    }
    CALL(driver.cuModuleUnload(module));
    CALL(driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16384));
}

/* 0: as before a failure; 1: not. */
static int goes_on(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return 0;
    CUresult result = driver.cuMemAlloc_v2(&pointer, 8 << 20);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemFree_v2(pointer);
    if (result != CUDA_SUCCESS)
        printf("  afterwards an allocation answers %s\n", driver_error(result));
    return result != CUDA_SUCCESS;
}

static int scenario(void)
{
    CUcontext context;
    if (!CALL(driver.cuInit(0)))
        goto out;
    if (!CALL(driver.cuDevicePrimaryCtxRetain(&context, 0)))
        goto out;
    CALL(driver.cuCtxSetCurrent(context));
    linear();
    arrays();
    virtual_memory();
    graphs();
    kernels();
out:
    printf("%s\n", failures ? "" : " no call failed");
    fflush(stdout);
    void (*allow)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "test_rm_allow");
    if (allow)
        allow();
    return goes_on();
}

int main(void)
{
    int bad = 0;
    if (!driver_load())
        return 77;
    char count_path[] = "/tmp/vgpu-refusals-XXXXXX";
    int count_fd = mkstemp(count_path);
    for (int n = 0; n <= ATTEMPTS_MAX; n++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", n);
        setenv("VGPU_TEST_RM_FAIL", text, 1);
        if (n == 0)
            setenv("VGPU_TEST_RM_COUNT", count_path, 1);
        else
            unsetenv("VGPU_TEST_RM_COUNT");
        off_t allocations = lseek(count_fd, 0, SEEK_END);
        if (n > 0 && n > allocations)
            break;
        if (n > 0)
            printf("from allocation %2d of %d on refused:", n, (int)allocations);
        else
            printf("nothing refused:");
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(scenario());
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status))
            printf("killed by signal %d\n", WTERMSIG(status));
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    unlink(count_path);
    printf("%d of the attempts crashed or did not go on\n", bad);
    return bad != 0;
}
