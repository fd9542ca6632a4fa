/* SPDX-License-Identifier: Apache-2.0 */
/* Running one piece of work on a stream: what it does at once, and what it has the machine do. */
#include "sim/work/stream.h"

#include <string.h>

#define TOUCH_BYTES 4096u

/* On a card a kernel that touches what is not mapped ends its context; here its launch fails. */
static CUresult kernel_touch(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at - address < bytes; at += TOUCH_BYTES) {
        char *host;
        uint64_t word;

        if (contents_of(at, sizeof word, &host) != CUDA_SUCCESS)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (!host)
            continue;
        memcpy(&word, host, sizeof word);
        word++;
        memcpy(host, &word, sizeof word);
    }
    return CUDA_SUCCESS;
}

/* A kernel reads what is backed by the host over the bus, each time. */
static uint64_t kernel_bus_ns(const struct work *work)
{
    uint64_t bytes = bytes_on_host(work->kernel.touched_at, work->kernel.touched_bytes) +
                     bytes_on_host(work->kernel.read_at, work->kernel.read_bytes);

    return bytes * 1000 / BUS_BYTES_PER_US;
}

static CUresult kernel_run(struct stream *stream, const struct work *work)
{
    struct sim_work kernel = {.kind = SIM_WORK_KERNEL,
        .duration_ns = work->kernel.duration_ns,
        .meeting = work->kernel.meeting,
        .parties = work->kernel.parties};
    CUresult r = context_local_grow(stream->context, work->kernel.local_bytes);

    if (kernel.duration_ns != UINT64_MAX)
        kernel.duration_ns += kernel_bus_ns(work);
    if (r == CUDA_SUCCESS)
        r = kernel_touch(work->kernel.touched_at, work->kernel.touched_bytes);
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

/* Contents move at the call, not at their time: and of kernels those that touch memory. */
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
