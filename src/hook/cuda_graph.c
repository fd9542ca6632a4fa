/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: their memory comes from a pool of the device's own, at the upload or the first launch. It
 * is charged below the API; under the API ledger, and for managed memory, a launch is judged by
 * what the graph needed when it was instantiated or updated. */
#include "pace/capture.h"
#include "memory/context_memory.h"
#include "memory/graph.h"
#include "memory/graph_execs.h"
#include "memory/graph_taking.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "memory/pools.h"
#include "rm/rm_memory.h"
#include "vmem/use.h"
#include "vmem/world.h"

#include <stddef.h>
#include <string.h>

static bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

static CUresult run_counted(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    struct graph_exec exec;
    struct graph_taking taking;
    if (!graph_execs_get(handle, &exec) || capture_records(stream, zero))
        return run(handle, stream);
    if (!graph_taking_begin(&taking, handle, &exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = run(handle, stream);
    graph_taking_end(&taking, handle, &exec, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        graph_execs_note_launched(handle);
    return result;
}

/* Memory is taken before the first of its nodes runs, so that what failed for want of it can be
 * tried again. */
__attribute__((noinline)) static CUresult run_slowly(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    unsigned attempts = 0;
    CUresult result = CUDA_SUCCESS;
    while (pools_allow_attempt(&attempts, result, -1))
        result = pools_count() ? run_counted(handle, stream, zero, run) : run(handle, stream);
    return result;
}

static inline CUresult run_in_world(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    bool entered = world_enter();
    use_note_unseen(entered);
    return world_left(entered, run_slowly(handle, stream, zero, run));
}

static inline CUresult launch(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    HALT_GUARD();
    if (pace_passes())
        return run_in_world(handle, stream, zero, run);
    struct pace_launch paced;
    world_wait(stream, zero);
    pace_begin(&paced, stream, zero, duration_key((uintptr_t)handle, 0));
    CUresult result = run_in_world(handle, stream, zero, run);
    pace_end(&paced, result == CUDA_SUCCESS);
    return result;
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    return launch(hGraphExec, hStream, STREAM_ZERO_LEGACY, cuda.cuGraphLaunch);
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    return launch(hGraphExec, hStream, STREAM_ZERO_PER_THREAD, cuda.cuGraphLaunch_ptsz);
}

CUresult hook_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    return run_in_world(hGraph, hStream, STREAM_ZERO_LEGACY, cuda.cuGraphUpload);
}

CUresult hook_cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    return run_in_world(hGraphExec, hStream, STREAM_ZERO_PER_THREAD, cuda.cuGraphUpload_ptsz);
}

/* ---- instantiation ---- */

/* Asked before the driver instantiates: a graph that cannot be read must not be launched. */
static CUresult read_graph(CUgraph graph, unsigned long long flags, struct graph_exec *ret_exec)
{
    pools_note_use();
    *ret_exec = (struct graph_exec){
        .frees_itself = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH};
    if (!pools_count())
        return CUDA_SUCCESS;
    struct capture_relaxed former = capture_relax();
    CUresult result = graph_needs_of(graph, &ret_exec->needs);
    capture_restore(&former);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < VGPU_REGION_DEVICES; i++) {
        if (ret_exec->needs.managed_bytes[i] && memory_current_context(&ret_exec->context) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY; /* it would never be given back with it */
    }
    if (!counts_by_api()) {
        memset(ret_exec->needs.bytes, 0, sizeof(ret_exec->needs.bytes));
        ret_exec->needs.local_bytes = 0;
    }
    return result;
}

static CUresult instantiated(
    CUresult result, const CUgraphExec *handle, const struct graph_exec *exec)
{
    if (result == CUDA_SUCCESS && pools_count())
        graph_execs_put(*handle, exec);
    return result;
}

CUresult hook_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
    char *logBuffer, size_t bufferSize)
{
    hook_enter();
    struct graph_exec exec;
    CUresult result = read_graph(hGraph, 0, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    return instantiated(result, phGraphExec, &exec);
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    hook_enter();
    struct graph_exec exec;
    CUresult result = read_graph(hGraph, 0, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    return instantiated(result, phGraphExec, &exec);
}

CUresult hook_cuGraphInstantiateWithFlags(
    CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    hook_enter();
    struct graph_exec exec;
    CUresult result = read_graph(hGraph, flags, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags);
    return instantiated(result, phGraphExec, &exec);
}

/* An upload that comes with the instantiation takes memory at once. */
static CUresult instantiate_with(CUgraphExec *handle, CUgraph graph,
    CUDA_GRAPH_INSTANTIATE_PARAMS *params, __typeof__(cuda.cuGraphInstantiateWithParams) real)
{
    unsigned long long flags = params ? params->flags : 0;
    struct graph_exec exec;
    struct graph_taking taking;
    CUresult result = read_graph(graph, flags, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pools_count() || !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return instantiated(real(handle, graph, params), handle, &exec);
    if (!graph_taking_begin(&taking, NULL, &exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = real(handle, graph, params);
    graph_taking_end(
        &taking, result == CUDA_SUCCESS ? *handle : NULL, &exec, result == CUDA_SUCCESS);
    return instantiated(result, handle, &exec);
}

static CUresult instantiate_params(CUgraphExec *handle, CUgraph graph,
    CUDA_GRAPH_INSTANTIATE_PARAMS *params, __typeof__(cuda.cuGraphInstantiateWithParams) real)
{
    unsigned attempts = 0;
    CUresult result = CUDA_SUCCESS;
    while (pools_allow_attempt(&attempts, result, -1))
        result = instantiate_with(handle, graph, params, real);
    return result;
}

CUresult hook_cuGraphInstantiateWithParams(
    CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    hook_enter();
    return instantiate_params(
        phGraphExec, hGraph, instantiateParams, cuda.cuGraphInstantiateWithParams);
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(
    CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    hook_enter();
    return instantiate_params(
        phGraphExec, hGraph, instantiateParams, cuda.cuGraphInstantiateWithParams_ptsz);
}

CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    hook_enter();
    /* Before the driver's call: the handle may be given out again at once. */
    struct graph_exec exec;
    bool known = pools_count() && graph_execs_get(hGraphExec, &exec);
    if (known)
        graph_execs_forget(hGraphExec);
    CUresult result = cuda.cuGraphExecDestroy(hGraphExec);
    if (known && result != CUDA_SUCCESS)
        graph_execs_put(hGraphExec, &exec);
    else if (known)
        graph_taking_release(hGraphExec, &exec);
    pools_refresh_current();
    return result;
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    hook_enter();
    pools_note_use();
    if (nodeParams)
        pools_note_node(&nodeParams->poolProps);
    return cuda.cuGraphAddMemAllocNode(
        phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

static void note_node(const CUgraphNodeParams *params)
{
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        pools_note_node(&params->alloc.poolProps);
}

CUresult hook_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    hook_enter();
    note_node(nodeParams);
    return cuda.cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
    CUgraphNodeParams *nodeParams)
{
    hook_enter();
    note_node(nodeParams);
    return cuda.cuGraphAddNode_v2(
        phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult hook_cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
    CUgraphNodeParams *nodeParams)
{
    hook_enter();
    note_node(nodeParams);
    return cuda.cuGraphAddNode_v3(
        phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

/* ---- updates: the kernels may be others, which need more local memory ---- */

/* Asked before the driver changes the graph; 0 where nothing is counted here. */
static CUresult read_update(CUgraph graph, uint64_t *ret_local_bytes)
{
    struct graph_needs needs = {.local_bytes = 0};
    CUresult result = counts_by_api() ? graph_needs_of(graph, &needs) : CUDA_SUCCESS;
    *ret_local_bytes = needs.local_bytes;
    return result;
}

static CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS *params, uint64_t *ret_local_bytes)
{
    *ret_local_bytes = 0;
    return counts_by_api() ? graph_kernel_local_bytes(params, ret_local_bytes) : CUDA_SUCCESS;
}

static CUresult updated(CUresult result, CUgraphExec handle, uint64_t local_bytes)
{
    struct graph_exec exec;
    if (result != CUDA_SUCCESS || local_bytes <= GRAPH_DEFAULT_LOCAL_BYTES)
        return result;
    if (!graph_execs_get(handle, &exec))
        memset(&exec, 0, sizeof(exec));
    if (local_bytes > exec.needs.local_bytes) {
        exec.needs.local_bytes = local_bytes;
        graph_execs_put(handle, &exec);
    }
    return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
    CUgraphExecUpdateResult *updateResult_out)
{
    HALT_GUARD();
    uint64_t local_bytes;
    CUresult result = read_update(hGraph, &local_bytes);
    if (result == CUDA_SUCCESS)
        return updated(cuda.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out),
            hGraphExec, local_bytes);
    if (updateResult_out)
        *updateResult_out = CU_GRAPH_EXEC_UPDATE_ERROR;
    return result;
}

CUresult hook_cuGraphExecUpdate_v2(
    CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    HALT_GUARD();
    uint64_t local_bytes;
    CUresult result = read_update(hGraph, &local_bytes);
    if (result == CUDA_SUCCESS)
        return updated(
            cuda.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo), hGraphExec, local_bytes);
    if (resultInfo)
        *resultInfo = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    return result;
}

CUresult hook_cuGraphExecKernelNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    HALT_GUARD();
    CUDA_KERNEL_NODE_PARAMS params = {.func = nodeParams ? nodeParams->func : NULL};
    uint64_t local_bytes;
    CUresult result = read_kernel(&params, &local_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams);
    return updated(result, hGraphExec, local_bytes);
}

CUresult hook_cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    HALT_GUARD();
    const CUDA_KERNEL_NODE_PARAMS none = {.func = NULL};
    uint64_t local_bytes;
    CUresult result = read_kernel(nodeParams ? nodeParams : &none, &local_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams);
    return updated(result, hGraphExec, local_bytes);
}

CUresult hook_cuGraphExecNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    HALT_GUARD();
    CUDA_KERNEL_NODE_PARAMS params = {.func = NULL};
    uint64_t local_bytes;
    if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL)
        params = (CUDA_KERNEL_NODE_PARAMS){
            .func = nodeParams->kernel.func, .kern = nodeParams->kernel.kern};
    CUresult result = read_kernel(&params, &local_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams);
    return updated(result, hGraphExec, local_bytes);
}
