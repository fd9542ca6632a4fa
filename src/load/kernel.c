/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as PTX text: each step depends on the one before, and on a square, so that no compiler
 * folds two into one. */
#include "load/kernel.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_THREADS 256

/* Old enough for every driver; the second in case that one no longer takes the first. */
static const char *const ptx_heads[] = {
    ".version 5.0\n.target sm_50\n.address_size 64\n",
    ".version 6.4\n.target sm_70\n.address_size 64\n",
};

static const char ptx_body[] =
    ".visible .entry work(\n"
    "    .param .u64 duration_ns, .param .u32 steps, .param .u64 sink)\n"
    "{\n"
    "    .reg .pred %p<3>;\n"
    "    .reg .b32 %r<8>;\n"
    "    .reg .b64 %rd<4>;\n"
    "    ld.param.u32 %r1, [steps];\n"
    "    ld.param.u64 %rd1, [sink];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    mov.u32 %r3, %ctaid.x;\n"
    "    mad.lo.u32 %r4, %r3, 1024, %r2;\n"
    "    or.b32 %r5, %r4, 1;\n"
    "step:\n"
    "    mad.lo.u32 %r4, %r4, %r4, %r5;\n"
    "    sub.u32 %r1, %r1, 1;\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra step;\n"
    "    setp.ne.u32 %p2, %r4, 305419896;\n"
    "    @%p2 bra done;\n"
    "    st.global.u32 [%rd2], %r4;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry persistent(\n"
    "    .param .u64 duration_ns, .param .u32 steps, .param .u64 sink,\n"
    "    .param .u64 words, .param .u64 stop)\n"
    "{\n"
    "    .reg .pred %p<6>;\n"
    "    .reg .b32 %r<12>;\n"
    "    .reg .b64 %rd<9>;\n"
    "    ld.param.u64 %rd1, [sink];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n"
    "    ld.param.u64 %rd3, [words];\n"
    "    cvta.to.global.u64 %rd4, %rd3;\n"
    "    ld.param.u64 %rd5, [stop];\n"
    "    cvta.to.global.u64 %rd6, %rd5;\n"
    "    mov.u64 %rd7, 0;\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    mov.u32 %r3, %ctaid.x;\n"
    "    or.b32 %r6, %r2, %r3;\n"
    "    setp.ne.u32 %p3, %r6, 0;\n"
    "    mad.lo.u32 %r4, %r3, 1024, %r2;\n"
    "    or.b32 %r5, %r4, 1;\n"
    "chunk:\n"
    "    ld.param.u32 %r1, [steps];\n"
    "step:\n"
    "    mad.lo.u32 %r4, %r4, %r4, %r5;\n"
    "    sub.u32 %r1, %r1, 1;\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra step;\n"
    /* The first thread counts, and passes the host's word to stop on to all. */
    "    @%p3 bra look;\n"
    "    add.u64 %rd7, %rd7, 1;\n"
    "    st.volatile.global.u64 [%rd4], %rd7;\n"
    "    ld.volatile.global.u32 %r7, [%rd4+8];\n"
    "    setp.eq.u32 %p4, %r7, 0;\n"
    "    @%p4 bra look;\n"
    "    st.volatile.global.u32 [%rd6], %r7;\n"
    "look:\n"
    "    ld.volatile.global.u32 %r8, [%rd6];\n"
    "    setp.eq.u32 %p5, %r8, 0;\n"
    "    @%p5 bra chunk;\n"
    "    setp.ne.u32 %p2, %r4, 305419896;\n"
    "    @%p2 bra done;\n"
    "    st.global.u32 [%rd2], %r4;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

const char *load_form_name(enum load_form form)
{
    static const char *const names[FORMS] = {
        "full", "one-block", "graph", "cooperative", "persistent"};
    return names[form];
}

static CUmodule load_module(void)
{
    CUresult result = CUDA_ERROR_INVALID_PTX;
    CUmodule module = NULL;
    for (size_t i = 0; result != CUDA_SUCCESS && i < sizeof(ptx_heads) / sizeof(*ptx_heads); i++) {
        char text[sizeof(ptx_body) + 128];
        snprintf(text, sizeof(text), "%s%s", ptx_heads[i], ptx_body);
        result = load_cuda.cuModuleLoadData(&module, text);
        if (result != CUDA_ERROR_INVALID_PTX && result != CUDA_ERROR_NO_BINARY_FOR_GPU &&
            result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
            break;
    }
    load_check(result, "cuModuleLoadData");
    return module;
}

static int attribute(const struct load_device *device, CUdevice_attribute which)
{
    int value;
    LOAD_CALL(cuDeviceGetAttribute, &value, which, device->device);
    return value;
}

static unsigned blocks_that_fill(const struct load_device *device, CUfunction function)
{
    int blocks;
    LOAD_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function, BLOCK_THREADS, 0);
    return (unsigned)((blocks > 0 ? blocks : 1) * device->multiprocessors);
}

/* Into the current context. */
static void prepare(struct load_device *device)
{
    void *words;
    device->multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    device->cooperative = attribute(device, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
    CUmodule module = load_module();
    LOAD_CALL(cuModuleGetFunction, &device->work, module, "work");
    LOAD_CALL(cuModuleGetFunction, &device->persistent, module, "persistent");
    device->work_blocks = blocks_that_fill(device, device->work);
    device->persistent_blocks = blocks_that_fill(device, device->persistent);
    LOAD_CALL(cuMemAlloc_v2, &device->sink, 8);
    device->stop = device->sink + 4;
    LOAD_CALL(cuMemsetD32_v2, device->sink, 0, 2);
    LOAD_CALL(cuMemHostAlloc, &words, sizeof(*device->words), CU_MEMHOSTALLOC_DEVICEMAP);
    LOAD_CALL(cuMemHostGetDevicePointer_v2, &device->words_address, words, 0);
    memset(words, 0, sizeof(*device->words));
    device->words = words;
    LOAD_CALL(cuCtxSynchronize);
}

void load_device_open(struct load_device *device, unsigned ordinal)
{
    LOAD_CALL(cuInit, 0);
    LOAD_CALL(cuDeviceGet, &device->device, (int)ordinal);
    LOAD_CALL(cuDeviceGetName, device->name, sizeof(device->name), device->device);
    LOAD_CALL(cuDevicePrimaryCtxRetain, &device->context, device->device);
    LOAD_CALL(cuCtxSetCurrent, device->context);
    prepare(device);
}

void load_device_open_beside(struct load_device *device, const struct load_device *first)
{
    *device = *first;
    LOAD_CALL(cuCtxCreate_v2, &device->context, 0, device->device);
    prepare(device);
}

static void launch_one(
    const struct load_device *device, const struct load_kernel *kernel, CUstream stream)
{
    uint64_t duration_ns = kernel->steps;
    uint32_t steps = kernel->steps;
    CUdeviceptr sink = device->sink;
    void *params[] = {&duration_ns, &steps, &sink};
    unsigned blocks = kernel->form == FORM_ONE_BLOCK ? 1 : device->work_blocks;
    if (kernel->form == FORM_COOPERATIVE)
        LOAD_CALL(cuLaunchCooperativeKernel, device->work, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0,
            stream, params);
    else
        LOAD_CALL(cuLaunchKernel, device->work, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream,
            params, NULL);
}

static CUgraphExec make_graph(const struct load_device *device, const struct load_kernel *kernel)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec instance;
    LOAD_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    LOAD_CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < LOAD_GRAPH_KERNELS; i++)
        launch_one(device, kernel, stream);
    LOAD_CALL(cuStreamEndCapture, stream, &graph);
    if (load_cuda.cuGraphInstantiateWithFlags)
        LOAD_CALL(cuGraphInstantiateWithFlags, &instance, graph, 0);
    else if (load_cuda.cuGraphInstantiate_v2)
        LOAD_CALL(cuGraphInstantiate_v2, &instance, graph, NULL, NULL, 0);
    else if (load_cuda.cuGraphInstantiate)
        LOAD_CALL(cuGraphInstantiate, &instance, graph, NULL, NULL, 0);
    else
        load_fail("this driver has no cuGraphInstantiate");
    return instance;
}

struct load_kernel load_kernel_make(
    const struct load_device *device, enum load_form form, uint32_t steps)
{
    struct load_kernel kernel = {.form = form, .steps = steps ? steps : 1};
    if (form == FORM_COOPERATIVE && !device->cooperative)
        load_fail("%s has no cooperative launches", device->name);
    if (form == FORM_GRAPH)
        kernel.graph = make_graph(device, &kernel);
    return kernel;
}

void load_kernel_set_brief(struct load_device *device, bool brief)
{
    LOAD_CALL(cuCtxSynchronize);
    LOAD_CALL(cuMemsetD32_v2, device->stop, brief, 1);
    LOAD_CALL(cuCtxSynchronize);
    device->words->count = 0;
    device->words->stop = 0;
}

void load_kernel_launch_persistent(const struct load_device *device,
    const struct load_kernel *kernel, uint64_t simulated_ns, CUstream stream)
{
    uint32_t steps = kernel->steps;
    CUdeviceptr sink = device->sink, words = device->words_address, stop = device->stop;
    void *params[] = {&simulated_ns, &steps, &sink, &words, &stop};
    LOAD_CALL(cuLaunchKernel, device->persistent, device->persistent_blocks, 1, 1, BLOCK_THREADS, 1,
        1, 0, stream, params, NULL);
}

void load_kernel_launch(
    const struct load_device *device, const struct load_kernel *kernel, CUstream stream)
{
    if (kernel->form == FORM_GRAPH)
        LOAD_CALL(cuGraphLaunch, kernel->graph, stream);
    else if (kernel->form == FORM_PERSISTENT)
        load_kernel_launch_persistent(device, kernel, kernel->steps, stream);
    else
        launch_one(device, kernel, stream);
}

unsigned load_kernel_count(const struct load_kernel *kernel)
{
    return kernel->form == FORM_GRAPH ? LOAD_GRAPH_KERNELS : 1;
}
