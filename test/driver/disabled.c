/* SPDX-License-Identifier: Apache-2.0 */
/* What a disabled node takes: a graph of one kernel with 32 KiB of local memory a thread, which is
 * instantiated, launched while the kernel is disabled, and enabled. The region's account, NVML's
 * figure for this process, and the card's memory in use after each step, in MiB. */
#include "driver.h"

#include <stdio.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)

static void row(const char *step)
{
    printf("| %-40s | %9.2f | %9.2f | %9.2f |\n", step, (double)driver_region_usage().bytes / MIB,
        (double)driver_nvml_bytes(getpid()) / MIB, (double)driver_nvml_bytes(0) / MIB);
    fflush(stdout);
}

static CUdeviceptr cell;

static CUgraphNode add_kernel(CUgraph graph)
{
    CUmodule module;
    CUgraphNode node;
    void *params[] = {&cell};
    CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = params};
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&kernel.func, module, "big"));
    DRIVER_CALL(driver.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    return node;
}

static void run(CUgraphExec exec, const char *step)
{
    CUresult result = driver.cuGraphLaunch(exec, NULL);
    if (result == CUDA_SUCCESS)
        result = driver.cuCtxSynchronize();
    row(result == CUDA_SUCCESS ? step : driver_error(result));
}

int main(void)
{
    CUgraph graph;
    CUgraphExec exec;
    if (!driver_load())
        return 77;
    if (!driver.cuGraphNodeSetEnabled) {
        printf("SKIP: the driver disables no nodes\n");
        return 77;
    }
    (void)driver_enter();
    DRIVER_CALL(driver.cuMemAlloc_v2(&cell, 4096));
    printf("| %-40s | %9s | %9s | %9s |\n", "after", "ledger", "NVML", "card");
    printf("| --- | --- | --- | --- |\n");
    DRIVER_CALL(driver.cuGraphCreate(&graph, 0));
    CUgraphNode node = add_kernel(graph);
    row("the module is loaded");
    DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
    row("instantiated");
    DRIVER_CALL(driver.cuGraphNodeSetEnabled(exec, node, 0));
    row("disabled");
    run(exec, "launched while it is disabled");
    DRIVER_CALL(driver.cuGraphNodeSetEnabled(exec, node, 1));
    row("enabled");
    run(exec, "launched");
    DRIVER_CALL(driver.cuGraphExecDestroy(exec));
    row("destroyed");
    return 0;
}
