/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and captures step by step, as a table: what each call answers beside what the
 * documentation says, and what the region counts beside what NVML says of this process. Exit status
 * 1 where bytes are not equal to the MiB (--tolerance MIB: more), 2 where only answers differ. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define ANY ((CUresult)-1) /* not documented */

static int64_t tolerance_bytes = 1 << 20;
static int different, unexpected;
static CUfunction spin;

static double graph_mib(CUgraphMem_attribute attribute)
{
    cuuint64_t value = 0;
    if (!driver.cuDeviceGetGraphMemAttribute ||
        driver.cuDeviceGetGraphMemAttribute(0, attribute, &value) != CUDA_SUCCESS)
        return -1;
    return (double)value / MIB;
}

/* Where a step has several right answers: `other`. */
static CUresult tell(const char *step, CUresult got, CUresult wanted, CUresult other)
{
    struct vgpu_usage usage = driver_region_usage();
    int64_t ours = (int64_t)(usage.bytes - usage.managed);
    int64_t theirs = driver_nvml_bytes(getpid());
    int64_t difference = ours - theirs;
    bool equal = theirs < 0 || (difference < tolerance_bytes && difference > -tolerance_bytes);
    bool right = wanted == ANY || got == wanted || got == other;
    different += !equal;
    unexpected += !right;
    printf("| %-56s | %-42s | %9.2f | %9.2f | %8.2f | %8.2f | %s%s |\n", step, driver_error(got),
        (double)ours / MIB, theirs < 0 ? -1.0 : (double)theirs / MIB,
        graph_mib(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
        graph_mib(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), equal ? "equal" : "DIFFERENT",
        right ? "" : ", OTHER ANSWER");
    if (!right)
        printf("|   expected %s%s%s\n", driver_error(wanted), other != wanted ? " or " : "",
            other != wanted ? driver_error(other) : "");
    fflush(stdout);
    return got;
}

#define STEP(text, call, wanted) tell(text, call, wanted, wanted)
#define STEP_OR(text, call, wanted, other) tell(text, call, wanted, other)
#define OK CUDA_SUCCESS

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = bytes};
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction function, void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = params};
}

/* A graph of one allocation. */
static CUgraph allocating(size_t bytes, CUdeviceptr *ret_pointer)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(bytes);
    DRIVER_CALL(driver.cuGraphCreate(&graph, 0));
    DRIVER_CALL(driver.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    *ret_pointer = params.dptr;
    return graph;
}

/* Allocation, a kernel of that long, free. */
static CUgraph working(size_t bytes, uint64_t duration_ns)
{
    CUgraph graph;
    CUgraphNode first, second, third;
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(bytes);
    void *arguments[] = {&duration_ns};
    CUDA_KERNEL_NODE_PARAMS work = kernel(spin, arguments);
    DRIVER_CALL(driver.cuGraphCreate(&graph, 0));
    DRIVER_CALL(driver.cuGraphAddMemAllocNode(&first, graph, NULL, 0, &params));
    DRIVER_CALL(driver.cuGraphAddKernelNode_v2(&second, graph, &first, 1, &work));
    DRIVER_CALL(driver.cuGraphAddMemFreeNode(&third, graph, &second, 1, params.dptr));
    return graph;
}

static void trim(const char *step)
{
    (void)driver.cuCtxSynchronize();
    STEP(step, driver.cuDeviceGraphMemTrim(0), OK);
}

static void memory_nodes(void)
{
    CUdeviceptr pointer;
    CUgraphExec exec = NULL, second = NULL;
    CUgraph clone = NULL, graph = allocating(64 << 20, &pointer);
    STEP("graph with a 64 MiB allocation", OK, OK);
    STEP("instantiated", driver.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    STEP_OR("instantiated a second time", driver.cuGraphInstantiateWithFlags(&second, graph, 0),
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED);
    STEP_OR("cloned", driver.cuGraphClone(&clone, graph), CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_NOT_SUPPORTED);
    STEP("uploaded", driver.cuGraphUpload(exec, NULL), OK);
    STEP("launched", driver.cuGraphLaunch(exec, NULL), OK);
    STEP("launched with its memory in use", driver.cuGraphLaunch(exec, NULL),
        CUDA_ERROR_INVALID_VALUE);
    STEP("freed by cuMemFreeAsync", driver.cuMemFreeAsync(pointer, NULL), OK);
    STEP("launched again", driver.cuGraphLaunch(exec, NULL), OK);
    STEP("freed by cuMemFree", driver.cuMemFree_v2(pointer), OK);
    STEP("freed a second time", driver.cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
    trim("trimmed");
    STEP("launched after that", driver.cuGraphLaunch(exec, NULL), OK);
    STEP("executable graph destroyed, memory in use", driver.cuGraphExecDestroy(exec), OK);
    STEP("instantiated anew", driver.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    STEP("launched with the former one's memory in use", driver.cuGraphLaunch(exec, NULL), ANY);
    STEP("graph destroyed", driver.cuGraphDestroy(graph), OK);
    STEP("freed", driver.cuMemFreeAsync(pointer, NULL), OK);
    STEP("executable graph destroyed", driver.cuGraphExecDestroy(exec), OK);
    trim("trimmed");
}

static void freed_on_launch(void)
{
    CUdeviceptr pointer;
    CUgraphExec exec = NULL;
    CUgraph graph = allocating(64 << 20, &pointer);
    STEP("auto-free on launch: instantiated",
        driver.cuGraphInstantiateWithFlags(
            &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
        OK);
    for (int i = 0; i < 3; i++)
        STEP("launched", driver.cuGraphLaunch(exec, NULL), OK);
    STEP("executable graph destroyed", driver.cuGraphExecDestroy(exec), OK);
    STEP("freed after that", driver.cuMemFree_v2(pointer), ANY);
    STEP("graph destroyed", driver.cuGraphDestroy(graph), OK);
    trim("trimmed");
}

static void free_nodes(void)
{
    CUdeviceptr pointer, other;
    CUgraphNode node;
    CUgraph graph = allocating(64 << 20, &pointer);
    STEP("free node of an allocation node",
        driver.cuGraphAddMemFreeNode(&node, graph, NULL, 0, pointer), OK);
    STEP("the same once more", driver.cuGraphAddMemFreeNode(&node, graph, NULL, 0, pointer),
        CUDA_ERROR_INVALID_VALUE);
    DRIVER_CALL(driver.cuMemAlloc_v2(&other, 4 << 20));
    STEP("free node of cuMemAlloc's memory",
        driver.cuGraphAddMemFreeNode(&node, graph, NULL, 0, other), CUDA_ERROR_INVALID_VALUE);
    DRIVER_CALL(driver.cuMemFree_v2(other));
    STEP("graph destroyed", driver.cuGraphDestroy(graph), OK);
}

static void child_graphs(void)
{
    CUdeviceptr pointer;
    CUgraph parent, child = allocating(64 << 20, &pointer);
    CUgraphNode node;
    CUgraphExec exec = NULL;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
        .graph = {.graph = child, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    DRIVER_CALL(driver.cuGraphCreate(&parent, 0));
    STEP_OR("child graph with an allocation, cloned",
        driver.cuGraphAddChildGraphNode(&node, parent, NULL, 0, child), CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_NOT_SUPPORTED);
    if (!driver.cuGraphAddNode)
        return;
    if (STEP("child graph moved (CUDA 12.9)",
            driver.cuGraphAddNode(&node, parent, NULL, 0, &params), OK) != OK)
        return;
    STEP("instantiated", driver.cuGraphInstantiateWithFlags(&exec, parent, 0), OK);
    STEP("launched", driver.cuGraphLaunch(exec, NULL), OK);
    STEP("freed", driver.cuMemFreeAsync(pointer, NULL), OK);
    STEP("executable graph destroyed", driver.cuGraphExecDestroy(exec), OK);
    STEP("graph destroyed", driver.cuGraphDestroy(parent), OK);
    trim("trimmed");
}

static void captured(CUstreamCaptureMode mode, const char *name)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr pointer, other = 0;
    size_t nodes = 0, free_bytes, total_bytes;
    bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    char text[80];
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    snprintf(text, sizeof(text), "%s capture of 8 times allocate and free 48 MiB", name);
    CUresult begun = driver.cuStreamBeginCapture_v2(stream, mode);
    for (int i = 0; i < 8; i++) {
        DRIVER_CALL(driver.cuMemAllocAsync(&pointer, 48 << 20, stream));
        DRIVER_CALL(driver.cuMemFreeAsync(pointer, stream));
    }
    STEP(text, begun, OK);
    STEP("cuMemGetInfo meanwhile", driver.cuMemGetInfo_v2(&free_bytes, &total_bytes), ANY);
    STEP("capture ended", driver.cuStreamEndCapture(stream, &graph), OK);
    if (graph) {
        (void)driver.cuGraphGetNodes(graph, NULL, &nodes);
        snprintf(
            text, sizeof(text), "instantiated, %zu nodes%s", nodes, nodes == 16 ? "" : ", NOT 16");
        unexpected += nodes != 16;
        STEP(text, driver.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
        STEP("launched", driver.cuGraphLaunch(exec, stream), OK);
        STEP("launched again", driver.cuGraphLaunch(exec, stream), OK);
        STEP("executable graph destroyed", driver.cuGraphExecDestroy(exec), OK);
        STEP("graph destroyed", driver.cuGraphDestroy(graph), OK);
    }
    trim("trimmed");
    DRIVER_CALL(driver.cuStreamBeginCapture_v2(stream, mode));
    STEP("cuMemAlloc in such a capture", driver.cuMemAlloc_v2(&other, 4 << 20),
        relaxed ? OK : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    STEP("capture ended", driver.cuStreamEndCapture(stream, &graph),
        relaxed ? OK : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (other)
        DRIVER_CALL(driver.cuMemFree_v2(other));
    if (graph)
        DRIVER_CALL(driver.cuGraphDestroy(graph));
    DRIVER_CALL(driver.cuStreamDestroy_v2(stream));
}

/* In a context of its own, with which the local memory goes. */
static void kernel_changed(CUcontext primary, bool update)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr cell;
    CUfunction small, large;
    CUgraph graph, changed;
    CUgraphNode node, other;
    CUgraphExec execs[2];
    CUgraphExecUpdateResultInfo info;
    void *arguments[] = {&cell};
    STEP("context for kernels", driver.cuCtxCreate_v2(&context, 0, 0), OK);
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&small, module, "nop"));
    DRIVER_CALL(driver.cuModuleGetFunction(&large, module, "big"));
    DRIVER_CALL(driver.cuMemAlloc_v2(&cell, 4096));
    DRIVER_CALL(driver.cuMemsetD8_v2(cell, 0, 4096));
    CUDA_KERNEL_NODE_PARAMS params = kernel(small, arguments);
    DRIVER_CALL(driver.cuGraphCreate(&graph, 0));
    DRIVER_CALL(driver.cuGraphCreate(&changed, 0));
    DRIVER_CALL(driver.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
    params.func = large;
    DRIVER_CALL(driver.cuGraphAddKernelNode_v2(&other, changed, NULL, 0, &params));
    for (int i = 0; i < 2; i++)
        STEP("graph of a kernel instantiated",
            driver.cuGraphInstantiateWithFlags(&execs[i], graph, 0), OK);
    STEP("launched", driver.cuGraphLaunch(execs[0], NULL), OK);
    if (update)
        STEP("updated to a kernel with 32 KiB of local memory",
            driver.cuGraphExecUpdate_v2(execs[1], changed, &info), OK);
    else
        STEP("node set to a kernel with 32 KiB of local memory",
            driver.cuGraphExecKernelNodeSetParams_v2(execs[1], node, &params), OK);
    STEP("launched", driver.cuGraphLaunch(execs[1], NULL), OK);
    STEP("done", driver.cuCtxSynchronize(), OK);
    for (int i = 0; i < 2; i++)
        DRIVER_CALL(driver.cuGraphExecDestroy(execs[i]));
    STEP("executable graphs destroyed", OK, OK);
    DRIVER_CALL(driver.cuGraphDestroy(graph));
    DRIVER_CALL(driver.cuGraphDestroy(changed));
    STEP("context destroyed", driver.cuCtxDestroy_v2(context), OK);
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
}

static void in_flight(void)
{
    CUstream streams[2];
    CUgraph graphs[2];
    CUgraphExec execs[2];
    for (int i = 0; i < 2; i++) {
        DRIVER_CALL(driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        graphs[i] = working(96 << 20, 500000000);
        DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&execs[i], graphs[i], 0));
    }
    STEP("graph of 96 MiB and half a second launched", driver.cuGraphLaunch(execs[0], streams[0]),
        OK);
    STEP("another beside it", driver.cuGraphLaunch(execs[1], streams[1]), OK);
    STEP("the first destroyed in flight", driver.cuGraphExecDestroy(execs[0]), OK);
    STEP("trimmed in flight", driver.cuDeviceGraphMemTrim(0), OK);
    STEP("done", driver.cuCtxSynchronize(), OK);
    STEP("the second launched once more", driver.cuGraphLaunch(execs[1], streams[0]), OK);
    STEP("destroyed", driver.cuGraphExecDestroy(execs[1]), OK);
    for (int i = 0; i < 2; i++) {
        DRIVER_CALL(driver.cuGraphDestroy(graphs[i]));
        DRIVER_CALL(driver.cuStreamSynchronize(streams[i]));
        DRIVER_CALL(driver.cuStreamDestroy_v2(streams[i]));
    }
    trim("trimmed");
}

static void in_another_context(CUcontext primary)
{
    CUcontext context;
    CUdeviceptr pointer;
    CUgraphExec exec = NULL;
    STEP("second context", driver.cuCtxCreate_v2(&context, 0, 0), OK);
    CUgraph graph = allocating(64 << 20, &pointer);
    STEP("instantiated in it", driver.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    STEP("launched", driver.cuGraphLaunch(exec, NULL), OK);
    DRIVER_CALL(driver.cuCtxSynchronize());
    STEP("context destroyed, memory in use", driver.cuCtxDestroy_v2(context), OK);
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
    trim("trimmed");
    STEP("freed", driver.cuMemFreeAsync(pointer, NULL), ANY);
    trim("trimmed");
}

static void beyond_the_slice(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUdeviceptr pointer, small;
    CUgraphExec exec = NULL;
    DRIVER_CALL(driver.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    CUgraph graph = allocating(total_bytes, &pointer);
    STEP("graph as large as the slice instantiated",
        driver.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    for (int i = 0; i < 2; i++)
        STEP("launched", driver.cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    STEP("uploaded", driver.cuGraphUpload(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    STEP("cuCtxSynchronize after that", driver.cuCtxSynchronize(), OK);
    STEP("cuMemAlloc of 64 MiB after that", driver.cuMemAlloc_v2(&small, 64 << 20), OK);
    STEP("freed", driver.cuMemFree_v2(small), OK);
    STEP("destroyed", driver.cuGraphExecDestroy(exec), OK);
    STEP("graph destroyed", driver.cuGraphDestroy(graph), OK);
    trim("trimmed");
}

static void load_kernels(void)
{
    CUmodule module;
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
}

int main(int argc, char **argv)
{
    CUcontext context;
    if (argc > 2 && !strcmp(argv[1], "--tolerance"))
        tolerance_bytes = strtoll(argv[2], NULL, 10) << 20;
    if (!driver_load())
        return 77;
    if (!driver.cuGraphAddMemAllocNode) {
        printf("SKIP: the driver has no memory nodes\n");
        return 77;
    }
    DRIVER_CALL(driver.cuInit(0));
    printf("| %-56s | %-42s | %9s | %9s | %8s | %8s |  |\n", "after", "answer", "ledger", "NVML",
        "reserved", "used");
    printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    STEP("first context", driver.cuDevicePrimaryCtxRetain(&context, 0), OK);
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    load_kernels();
    STEP("kernels loaded", OK, OK);
    memory_nodes();
    freed_on_launch();
    free_nodes();
    child_graphs();
    captured(CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
    captured(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local");
    captured(CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
    kernel_changed(context, false);
    kernel_changed(context, true);
    in_flight();
    in_another_context(context);
    beyond_the_slice();
    STEP("primary context released", driver.cuDevicePrimaryCtxRelease_v2(0), OK);
    printf("%d of the steps above differ in bytes, %d in their answers\n", different, unexpected);
    return different ? 1 : unexpected ? 2 : 0;
}
