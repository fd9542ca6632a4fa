/* SPDX-License-Identifier: Apache-2.0 */
/* One of everything, and the calls. */
#include "graphs_world.h"

#include "allocate.h"
#include "bed.h"
#include "driver.h"
#include "green.h"

#define MUST(call) REQUIRE((call) == CUDA_SUCCESS)

static void make_memory(struct world *w)
{
    w->property = allocation_property(0);
    w->pool_props = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    MUST(CU(cuMemAlloc_v2)(&w->pointer, 4 << 20));
    MUST(CU(cuMemAlloc_v2)(&w->cell, 4096));
    MUST(CU(cuMemAllocAsync)(&w->pooled, 4 << 20, w->other));
    MUST(CU(cuMemPoolCreate)(&w->pool, &w->pool_props));
    CUmemPoolProps managed = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    MUST(CU(cuMemPoolCreate)(&w->managed_pool, &managed));
    w->managed_node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    w->managed_node.alloc.poolProps = managed;
    w->managed_node.alloc.bytesize = 64 << 20;
    MUST(CU(cuMemCreate)(&w->handle, 4 << 20, &w->property, 0));
    MUST(CU(cuMemAddressReserve)(&w->range, 8 << 20, 0, 0, 0));
    MUST(CU(cuMemMap)(w->range, 4 << 20, 0, w->handle, 0));
    MUST(CU(cuMemExportToShareableHandle)(
        &w->exported_fd, w->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    w->flat = (CUDA_ARRAY_DESCRIPTOR){
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    w->flat_old = (CUDA_ARRAY_DESCRIPTOR_v1){
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    w->deep = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    w->deep_old = (CUDA_ARRAY3D_DESCRIPTOR_v1){
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    MUST(CU(cuArrayCreate_v2)(&w->array, &w->flat));
    MUST(CU(cuMipmappedArrayCreate)(&w->mipmap, &w->deep, 2));
}

/* Copies of what the library takes for a large one, from `range` to `pointer`. */
static void make_copies(struct world *w)
{
    CUDA_ARRAY_DESCRIPTOR line = {
        .Width = 4096, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    MUST(CU(cuMemHostAlloc)(&w->host, 4 << 20, 0));
    MUST(CU(cuMemAllocManaged)(&w->managed, 4 << 20, CU_MEM_ATTACH_GLOBAL));
    MUST(CU(cuArrayCreate_v2)(&w->line, &line));
    w->bytes = 4 << 20;
    w->copy_2d = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = w->range,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = w->pointer,
        .WidthInBytes = 1024,
        .Height = 1024};
    w->copy_3d = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = w->range,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = w->pointer,
        .WidthInBytes = 1024,
        .Height = 1024,
        .Depth = 1};
    w->copy_peer = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = w->range,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = w->pointer,
        .WidthInBytes = 1024,
        .Height = 1024,
        .Depth = 1};
    w->copy_op = (CUDA_MEMCPY3D_BATCH_OP){
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = w->range},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = w->pointer},
        .extent = {4096, 16, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    w->copy_attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    w->fabric = (CUDA_FABRIC_COPY_BATCH_OP){
        .src = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = w->range},
        .dst = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = w->pointer},
        .size = 4096};
    w->packed = (CUmemDecompressParams){.srcNumBytes = 4096,
        .dstNumBytes = 4096,
        .src = (void *)(uintptr_t)w->range,
        .dst = (void *)(uintptr_t)w->pointer,
        .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
    w->graphics = (void *)1;
    w->list_params = (CUstreamCigParam){STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV, w};
    w->list.streamCigParams = &w->list_params;
    w->operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    w->operation.waitValue.address = w->cell;
}

static void make_code(struct world *w)
{
    MUST(CU(cuModuleLoadData)(&w->module, driver_ptx));
    MUST(CU(cuModuleLoadData)(&w->spare, driver_ptx));
    MUST(CU(cuLibraryLoadData)(&w->library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0));
    MUST(CU(cuModuleGetFunction)(&w->big, w->module, "big"));
    MUST(CU(cuModuleGetFunction)(&w->nop, w->module, "nop"));
    w->params[0] = &w->cell;
    w->config = (CUlaunchConfig){.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = w->stream};
    w->launch = (CUDA_LAUNCH_PARAMS){.function = w->big,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = w->stream,
        .kernelParams = w->params};
}

static void make_graphs(struct world *w)
{
    w->kernel = (CUDA_KERNEL_NODE_PARAMS){.func = w->nop,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = w->params};
    w->allocation = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = w->pool_props, .bytesize = 64 << 20};
    MUST(CU(cuGraphCreate)(&w->empty, 0));
    MUST(CU(cuGraphCreate)(&w->launched, 0));
    MUST(CU(cuGraphCreate)(&w->allocating, 0));
    MUST(CU(cuGraphAddKernelNode_v2)(&w->kernel_node, w->launched, NULL, 0, &w->kernel));
    MUST(CU(cuGraphAddMemAllocNode)(&w->node, w->allocating, NULL, 0, &w->allocation));
    MUST(CU(cuGraphInstantiateWithFlags)(&w->exec, w->launched, 0));
    w->kernel.func = w->big;
    w->any.type = CU_GRAPH_NODE_TYPE_KERNEL;
    memcpy(&w->any.kernel, &w->kernel, sizeof(w->kernel));
}

void world_make(struct world *w)
{
    bed_context(0);
    MUST(CU(cuCtxGetCurrent)(&w->context));
    MUST(CU(cuCtxCreate_v2)(&w->second, 0, 0));
    MUST(CU(cuCtxSetCurrent)(w->context));
    w->descriptor = green_descriptor(0);
    w->green = green_make();
    MUST(CU(cuStreamCreate)(&w->stream, w->stream_flags));
    MUST(CU(cuStreamCreate)(&w->other, CU_STREAM_NON_BLOCKING));
    MUST(CU(cuEventCreate)(&w->event, 0));
    make_memory(w);
    make_copies(w);
    make_code(w);
    make_graphs(w);
    MUST(CU(cuCtxSynchronize)());
}

static void world_host_function(void *data)
{
    (void)data;
}

static void world_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}

/* Whether the device is ready yet is chance. */
static CUresult asked(CUresult result)
{
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

#define STEP(function, expression)                                                                 \
    static CUresult step_##function(struct world *w)                                               \
    {                                                                                              \
        (void)w;                                                                                   \
        return expression;                                                                         \
    }
#include "graphs_steps.def"
#undef STEP

const struct world_step world_steps[] = {
#define STEP(function, expression) {#function, step_##function},
#include "graphs_steps.def"
#undef STEP
};
const unsigned world_step_count = sizeof(world_steps) / sizeof(world_steps[0]);
