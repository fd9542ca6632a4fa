/* SPDX-License-Identifier: Apache-2.0 */
/* Running one piece of work on a stream: what it does at once, and what it has the machine do. */
#include "sim/work/stream.h"

static CUresult kernel_run(struct stream *stream, const struct work *work)
{
    struct sim_work kernel = {.kind = SIM_WORK_KERNEL,
        .duration_ns = work->kernel.duration_ns,
        .meeting = work->kernel.meeting,
        .parties = work->kernel.parties};
    CUresult r = context_local_grow(stream->context, work->kernel.local_bytes);

    if (r == CUDA_SUCCESS)
        stream_append(stream, &kernel);
    return r;
}

static CUresult copy_run(struct stream *stream, const CUDA_MEMCPY3D *copy)
{
    CUresult r = copy_execute(copy);
    struct sim_work work;

    if (r != CUDA_SUCCESS)
        return r;
    work = copy_work(copy);
    stream_append(stream, &work);
    return CUDA_SUCCESS;
}

static CUresult fill_run(struct stream *stream, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    CUresult r = fill_execute(fill);
    struct sim_work work;

    if (r != CUDA_SUCCESS)
        return r;
    work = fill_work(fill);
    stream_append(stream, &work);
    return CUDA_SUCCESS;
}

/* Contents move at the call, not at their time: no simulated kernel reads or writes them. */
CUresult work_run(struct stream *stream, const struct work *work)
{
    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_run(stream, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_run(stream, &work->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill_run(stream, &work->fill);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_function_add(stream, work->host.fn, work->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return graph_run(work->child, stream);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return graph_memory_take(stream, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_memory_free(work->memory.address, &stream->queue.last);
    default:
        return CUDA_SUCCESS;
    }
}
