/* SPDX-License-Identifier: Apache-2.0 */
/* Running one piece of work on a stream: what it does at once, and what it has the machine do. */
#include "sim/cuda_stream.h"

/* About what the smallest fill takes; larger ones are not told apart. */
#define FILL_NS 2000

static CUresult kernel_run(struct stream *stream, const struct work *work)
{
    struct sim_work kernel = {SIM_WORK_KERNEL, work->kernel.duration_ns, {0}};
    CUresult r = context_local_grow(stream->context, work->kernel.local_bytes);

    if (r == CUDA_SUCCESS)
        stream_append(stream, &kernel);
    return r;
}

static void copy_append(struct stream *stream, uint64_t duration_ns)
{
    struct sim_work copy = {SIM_WORK_COPY, duration_ns, {0}};

    stream_append(stream, &copy);
}

/* Contents move at the call, not at their time: no simulated kernel reads or writes them. */
CUresult work_run(struct stream *stream, const struct work *work)
{
    CUresult r = CUDA_SUCCESS;

    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_run(stream, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        r = copy_execute(&work->copy);
        if (r == CUDA_SUCCESS)
            copy_append(stream, copy_duration_ns(&work->copy));
        return r;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        r = fill_execute(&work->fill);
        if (r == CUDA_SUCCESS)
            copy_append(stream, FILL_NS);
        return r;
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
