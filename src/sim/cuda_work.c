/* SPDX-License-Identifier: Apache-2.0 */
/* Running one piece of work on a stream: what it does at once and when it will be done. */
#include "sim/cuda_stream.h"

static uint64_t later_by(uint64_t begin_ns, uint64_t duration_ns)
{
    return begin_ns > TIME_NEVER - duration_ns ? TIME_NEVER : begin_ns + duration_ns;
}

static CUresult kernel_run(
    struct stream *stream, const struct work *work, uint64_t begin_ns, uint64_t *ret_end_ns)
{
    CUresult r = context_local_grow(stream->context, work->kernel.local_bytes);

    if (r != CUDA_SUCCESS)
        return r;
    *ret_end_ns = begin_ns == TIME_NEVER
                      ? TIME_NEVER
                      : sim_work_submit(rm_descriptor(), stream->context->device->index, begin_ns,
                            work->kernel.duration_ns);
    return CUDA_SUCCESS;
}

/* Contents move at the call, not at their time: no simulated kernel reads or writes them. */
CUresult work_run(
    struct stream *stream, const struct work *work, uint64_t begin_ns, uint64_t *ret_end_ns)
{
    CUresult r = CUDA_SUCCESS;

    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_run(stream, work, begin_ns, ret_end_ns);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        r = copy_execute(&work->copy);
        if (r == CUDA_SUCCESS)
            *ret_end_ns = later_by(begin_ns, copy_duration_ns(&work->copy));
        return r;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        r = fill_execute(&work->fill);
        if (r == CUDA_SUCCESS)
            *ret_end_ns = later_by(begin_ns, 2000);
        return r;
    case CU_GRAPH_NODE_TYPE_HOST:
        r = host_function_add(stream, begin_ns, work->host.fn, work->host.userData);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return graph_run(work->child, stream, begin_ns, ret_end_ns);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        r = graph_memory_take(stream->context, work, begin_ns);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        r = graph_memory_free(work->memory.address, begin_ns);
        break;
    default:
        break;
    }
    if (r == CUDA_SUCCESS)
        *ret_end_ns = begin_ns;
    return r;
}
