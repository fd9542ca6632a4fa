/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: their memory comes from a pool of the device's own, at the upload or the first launch. It
 * is charged below the API; under the API ledger, and for managed memory, a launch is judged by
 * what the graph needed when it was instantiated or updated. */
#include "pace/capture.h"
#include "memory/context_memory.h"
#include "memory/graph.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "memory/pools.h"
#include "rm/rm_memory.h"

#include "base/lock.h"
#include "base/map.h"
#include "base/slab.h"

#include <stddef.h>
#include <string.h>

#define DEFAULT_LOCAL_BYTES 1024u /* a thread: part of the context */

/* An executable graph that takes memory. */
struct exec {
    struct graph_needs needs;
    bool frees_itself; /* what the launch before left goes first */
    bool launched;
    uint64_t context; /* that it goes with; 0: not asked, it takes no managed memory */
};

static struct {
    struct lock lock;
    struct slab slab;
    struct map index; /* by handle */
} graphs = {.slab = {.object_bytes = sizeof(struct exec)}};

void graph_reset(void)
{
    lock_reset(&graphs.lock);
    slab_finish(&graphs.slab);
    map_finish(&graphs.index);
}

static bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

static bool takes_memory(const struct graph_needs *needs)
{
    bool takes = needs->local_bytes > DEFAULT_LOCAL_BYTES;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        takes = takes || needs->bytes[i] || needs->managed_bytes[i];
    return takes;
}

/* A handle that comes again, as after its context was destroyed, means the new graph. */
static void put_exec(CUgraphExec handle, const struct exec *exec)
{
    bool takes = takes_memory(&exec->needs);
    lock_take(&graphs.lock);
    struct exec *kept = map_get(&graphs.index, (uintptr_t)handle);
    if (!kept && takes) {
        kept = slab_take(&graphs.slab);
        if (kept && map_put(&graphs.index, (uintptr_t)handle, kept) != 0) {
            slab_give(&graphs.slab, kept);
            kept = NULL;
        }
    }
    if (kept)
        *kept = *exec;
    lock_release(&graphs.lock);
}

static bool get_exec(CUgraphExec handle, struct exec *ret_exec)
{
    lock_take(&graphs.lock);
    const struct exec *kept = handle ? map_get(&graphs.index, (uintptr_t)handle) : NULL;
    if (kept)
        *ret_exec = *kept;
    lock_release(&graphs.lock);
    return kept != NULL;
}

static void note_launched(CUgraphExec handle)
{
    lock_take(&graphs.lock);
    struct exec *kept = map_get(&graphs.index, (uintptr_t)handle);
    if (kept)
        kept->launched = true;
    lock_release(&graphs.lock);
}

static void forget_exec(CUgraphExec handle)
{
    lock_take(&graphs.lock);
    struct exec *kept = handle ? map_remove(&graphs.index, (uintptr_t)handle) : NULL;
    if (kept)
        slab_give(&graphs.slab, kept);
    lock_release(&graphs.lock);
}

/* ---- managed memory: charged from the first launch until the graph is destroyed; what the graph
 * does not free itself, until the program does ---- */

static uint64_t managed_key(CUgraphExec handle, CUdevice ordinal)
{
    return (uintptr_t)handle ^ (uint64_t)ordinal << 48;
}

static uint64_t managed_charged(CUgraphExec handle, const struct exec *exec, CUdevice ordinal)
{
    uint64_t bytes = memory_recorded_bytes(MEMORY_GRAPH_MANAGED, managed_key(handle, ordinal));
    for (unsigned i = 0; i < exec->needs.left_count; i++) {
        if (exec->needs.left[i].ordinal == ordinal)
            bytes += memory_recorded_bytes(MEMORY_POINTER, exec->needs.left[i].pointer);
    }
    return bytes;
}

static void charge_managed(CUgraphExec handle, const struct exec *exec, CUdevice ordinal)
{
    int device = device_index(ordinal);
    uint64_t own = exec->needs.managed_bytes[ordinal];
    for (unsigned i = 0; i < exec->needs.left_count; i++) {
        const struct graph_left *left = &exec->needs.left[i];
        if (left->ordinal != ordinal)
            continue;
        memory_set_owned(
            MEMORY_POINTER, left->pointer, device, left->bytes, ACCOUNT_MANAGED, exec->context);
        own -= left->bytes;
    }
    memory_set_owned(MEMORY_GRAPH_MANAGED, managed_key(handle, ordinal), device, own,
        ACCOUNT_MANAGED, exec->context);
}

/* The graph is gone. Where it leaves more than is noted by pointer, that stays charged for good. */
static void release_managed(CUgraphExec handle, const struct exec *exec)
{
    for (CUdevice ordinal = 0; ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++) {
        uint64_t key = managed_key(handle, ordinal), more = exec->needs.left_more_bytes[ordinal];
        if (!exec->needs.managed_bytes[ordinal])
            continue;
        struct memory_record record = memory_take(MEMORY_GRAPH_MANAGED, key);
        if (record.device >= 0 && more)
            account_add((unsigned)record.device, more, ACCOUNT_MANAGED);
        memory_taken(&record, true, MEMORY_GRAPH_MANAGED, key);
    }
}

/* ---- what a launch may take, reserved until the pools tell their size ---- */
struct taking {
    struct memory_request managed[VGPU_REGION_DEVICES];
    CUdevice managed_ordinals[VGPU_REGION_DEVICES];
    unsigned managed_count;
    struct memory_request requests[VGPU_REGION_DEVICES];
    struct pool_growth foreseen[VGPU_REGION_DEVICES];
    CUdevice ordinals[VGPU_REGION_DEVICES];
    unsigned count;
    struct context_growth growth;
};

static void end_taking(
    struct taking *taking, CUgraphExec handle, const struct exec *exec, bool taken)
{
    for (unsigned i = taking->count; i-- > 0;) {
        pools_charge_graphs(taking->ordinals[i], taking->requests[i].device, &taking->foreseen[i]);
        memory_end(&taking->requests[i], false, MEMORY_GRAPH_POOL, 0);
    }
    for (unsigned i = taking->managed_count; i-- > 0;) {
        if (taken)
            charge_managed(handle, exec, taking->managed_ordinals[i]);
        memory_end(&taking->managed[i], false, MEMORY_GRAPH_MANAGED, 0);
    }
    context_memory_settle(&taking->growth, taken);
}

static bool begin_managed(
    struct taking *taking, CUgraphExec handle, const struct exec *exec, CUdevice ordinal)
{
    uint64_t bytes = exec->needs.managed_bytes[ordinal];
    uint64_t charged = bytes && handle ? managed_charged(handle, exec, ordinal) : 0;
    unsigned i = taking->managed_count;
    if (bytes <= charged)
        return true;
    if (memory_begin(
            &taking->managed[i], device_index(ordinal), bytes - charged, ACCOUNT_MANAGED) != 0)
        return false;
    /* The graph's other memory is not managed. */
    rm_memory_set_kind(taking->managed[i].former_kind);
    taking->managed_ordinals[i] = ordinal;
    taking->managed_count++;
    return true;
}

/* handle NULL: a graph that is being instantiated. */
static bool begin_taking(struct taking *taking, CUgraphExec handle, const struct exec *exec)
{
    bool fits = true;
    taking->count = taking->managed_count = 0;
    taking->growth = (struct context_growth){.charged = false};
    if (exec->needs.local_bytes > DEFAULT_LOCAL_BYTES)
        fits = context_memory_fits_limit(
            CU_LIMIT_STACK_SIZE, (size_t)exec->needs.local_bytes, &taking->growth);
    struct capture_relaxed former = capture_relax();
    for (CUdevice ordinal = 0; fits && ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++)
        fits = begin_managed(taking, handle, exec, ordinal);
    for (CUdevice ordinal = 0; fits && ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++) {
        uint64_t bytes = exec->needs.bytes[ordinal];
        if (!bytes)
            continue;
        uint64_t freed_first = exec->frees_itself && exec->launched ? bytes : 0;
        unsigned i = taking->count;
        taking->ordinals[i] = ordinal;
        taking->foreseen[i] = pools_graph_growth(ordinal, bytes, freed_first);
        fits = memory_begin(&taking->requests[i], device_index(ordinal), taking->foreseen[i].bytes,
                   ACCOUNT_BUFFER) == 0;
        taking->count += fits;
    }
    capture_restore(&former);
    if (!fits)
        end_taking(taking, handle, exec, false);
    return fits;
}

static CUresult run_counted(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    struct exec exec;
    struct taking taking;
    if (!get_exec(handle, &exec) || capture_records(stream, zero))
        return run(handle, stream);
    if (!begin_taking(&taking, handle, &exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = run(handle, stream);
    end_taking(&taking, handle, &exec, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        note_launched(handle);
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

static inline CUresult launch(
    CUgraphExec handle, CUstream stream, enum stream_zero zero, __typeof__(cuda.cuGraphLaunch) run)
{
    if (pace_passes())
        return run_slowly(handle, stream, zero, run);
    struct pace_launch paced;
    pace_begin(&paced, stream, zero, duration_key((uintptr_t)handle, 0));
    CUresult result = run_slowly(handle, stream, zero, run);
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
    return run_slowly(hGraph, hStream, STREAM_ZERO_LEGACY, cuda.cuGraphUpload);
}

CUresult hook_cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    return run_slowly(hGraphExec, hStream, STREAM_ZERO_PER_THREAD, cuda.cuGraphUpload_ptsz);
}

/* ---- instantiation ---- */

/* Asked before the driver instantiates: a graph that cannot be read must not be launched. */
static CUresult read_graph(CUgraph graph, unsigned long long flags, struct exec *ret_exec)
{
    pools_note_use();
    *ret_exec =
        (struct exec){.frees_itself = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH};
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

static CUresult instantiated(CUresult result, const CUgraphExec *handle, const struct exec *exec)
{
    if (result == CUDA_SUCCESS && pools_count())
        put_exec(*handle, exec);
    return result;
}

CUresult hook_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
    char *logBuffer, size_t bufferSize)
{
    hook_enter();
    struct exec exec;
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
    struct exec exec;
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
    struct exec exec;
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
    struct exec exec;
    struct taking taking;
    CUresult result = read_graph(graph, flags, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pools_count() || !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return instantiated(real(handle, graph, params), handle, &exec);
    if (!begin_taking(&taking, NULL, &exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = real(handle, graph, params);
    end_taking(&taking, result == CUDA_SUCCESS ? *handle : NULL, &exec, result == CUDA_SUCCESS);
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
    struct exec exec;
    bool known = pools_count() && get_exec(hGraphExec, &exec);
    if (known)
        forget_exec(hGraphExec);
    CUresult result = cuda.cuGraphExecDestroy(hGraphExec);
    if (known && result != CUDA_SUCCESS)
        put_exec(hGraphExec, &exec);
    else if (known)
        release_managed(hGraphExec, &exec);
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
    struct exec exec;
    if (result != CUDA_SUCCESS || local_bytes <= DEFAULT_LOCAL_BYTES)
        return result;
    if (!get_exec(handle, &exec))
        memset(&exec, 0, sizeof(exec));
    if (local_bytes > exec.needs.local_bytes) {
        exec.needs.local_bytes = local_bytes;
        put_exec(handle, &exec);
    }
    return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
    CUgraphExecUpdateResult *updateResult_out)
{
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
