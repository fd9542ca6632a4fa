/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches in all forms. A kernel whose first parameter is named …duration_ns runs for
 * that long (all ones: for ever), any other for 5 µs. One with parameters …meeting and …parties
 * behind it goes on only while as many of that meeting run, on as many devices. One with parameters
 * …touched_at and …touched_bytes adds 1 to the first word of each 4 KiB of that memory, one with
 * …read_at and …read_bytes reads it; what is backed by the host crosses the bus for it. With
 * CUDA_LAUNCH_BLOCKING=1 a launch waits for its kernel, as with the driver.
 */
#include "sim/work/launch.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_DURATION_NS 5000

/* The parameters as one buffer, from the extra list; NULL if there is none. */
static const char *extra_buffer(void **extra)
{
    const char *buffer = NULL;

    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
    }
    return buffer;
}

static CUresult kernel_duration(
    const CUDA_KERNEL_NODE_PARAMS *params, const struct kernel_facts *facts, uint64_t *ret_ns)
{
    const char *buffer = extra_buffer(params->extra);

    *ret_ns = DEFAULT_DURATION_NS;
    if (facts->params && !params->kernelParams && !buffer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!facts->has_duration)
        return CUDA_SUCCESS;
    memcpy(ret_ns, params->kernelParams ? params->kernelParams[0] : buffer, sizeof *ret_ns);
    return CUDA_SUCCESS;
}

static void kernel_meeting(const CUDA_KERNEL_NODE_PARAMS *params, const struct kernel_facts *facts,
    uint64_t *ret_meeting, uint32_t *ret_parties)
{
    const char *buffer = extra_buffer(params->extra);
    const uint32_t *offsets = facts->param_offsets;

    if (!facts->meets)
        return;
    memcpy(ret_meeting, params->kernelParams ? params->kernelParams[1] : buffer + offsets[1],
        sizeof *ret_meeting);
    memcpy(ret_parties, params->kernelParams ? params->kernelParams[2] : buffer + offsets[2],
        sizeof *ret_parties);
}

/* A stretch of memory, as the second and the third parameter. */
static void kernel_stretch(const CUDA_KERNEL_NODE_PARAMS *params, const struct kernel_facts *facts,
    uint64_t *ret_at, uint64_t *ret_bytes)
{
    const char *buffer = extra_buffer(params->extra);
    const uint32_t *offsets = facts->param_offsets;

    memcpy(ret_at, params->kernelParams ? params->kernelParams[1] : buffer + offsets[1],
        sizeof *ret_at);
    memcpy(ret_bytes, params->kernelParams ? params->kernelParams[2] : buffer + offsets[2],
        sizeof *ret_bytes);
}

static CUresult dimensions_check(
    const CUDA_KERNEL_NODE_PARAMS *params, const struct kernel_facts *facts)
{
    uint64_t threads = (uint64_t)params->blockDimX * params->blockDimY * params->blockDimZ;

    if (!params->gridDimX || !params->gridDimY || !params->gridDimZ || !params->blockDimX ||
        !params->blockDimY || !params->blockDimZ)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->gridDimX > 2147483647u || params->gridDimY > 65535 || params->gridDimZ > 65535 ||
        params->blockDimX > 1024 || params->blockDimY > 1024 || params->blockDimZ > 64 ||
        threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (facts->max_threads && threads > facts->max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    return (uint64_t)params->sharedMemBytes + facts->shared_bytes > 232448
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static bool launches_block(void)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");

    return text && strcmp(text, "1") == 0;
}

CUresult launch_work(const CUDA_KERNEL_NODE_PARAMS *params, struct work *ret_work)
{
    struct kernel_facts facts;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUresult r;

    if (!library_kernel_facts(params->func ? (void *)params->func : (void *)params->kern, &facts))
        return CUDA_ERROR_INVALID_HANDLE;
    r = dimensions_check(params, &facts);
    if (r == CUDA_SUCCESS)
        r = kernel_duration(params, &facts, &work.kernel.duration_ns);
    if (r != CUDA_SUCCESS)
        return r;
    kernel_meeting(params, &facts, &work.kernel.meeting, &work.kernel.parties);
    if (facts.touches)
        kernel_stretch(params, &facts, &work.kernel.touched_at, &work.kernel.touched_bytes);
    if (facts.reads)
        kernel_stretch(params, &facts, &work.kernel.read_at, &work.kernel.read_bytes);
    work.kernel.params = *params;
    work.kernel.local_bytes = facts.local_bytes;
    *ret_work = work;
    return CUDA_SUCCESS;
}

static CUresult launch(const CUDA_KERNEL_NODE_PARAMS *params, CUstream handle)
{
    struct stream *stream;
    bool wait = false;
    CUresult r;

    stream_admit(handle);
    {
        CUDA_LOCKED;
        struct work work;

        r = stream_get(handle, &stream);
        if (r == CUDA_SUCCESS)
            r = launch_work(params, &work);
        if (r == CUDA_SUCCESS) {
            wait = launches_block() && !stream->capture;
            r = stream_run(stream, &work);
        }
    }
    return wait && r == CUDA_SUCCESS ? stream_wait(stream) : r;
}

CUresult sim_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
    unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
    unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    CUDA_KERNEL_NODE_PARAMS all = {.func = function,
        .gridDimX = grid_x,
        .gridDimY = grid_y,
        .gridDimZ = grid_z,
        .blockDimX = block_x,
        .blockDimY = block_y,
        .blockDimZ = block_z,
        .sharedMemBytes = shared_bytes,
        .kernelParams = params,
        .extra = extra};

    return launch(&all, stream);
}

CUresult sim_cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
        config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
        config->hStream, params, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
    unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
    unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params)
{
    const struct sim_model *model = &context_current()->device->facts->model;

    /* All blocks must be on the card at once. */
    if ((uint64_t)grid_x * grid_y * grid_z > (uint64_t)model->multiprocessors * 32)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return sim_cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
        shared_bytes, stream, params, NULL);
}

CUresult sim_cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
    stream_admit(handle);
    CUDA_LOCKED;
    struct stream *stream;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {fn, data}};
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !fn)
        r = CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? stream_run(stream, &work) : r;
}

CUresult sim_cuLaunchHostFunc_v2(CUstream handle, CUhostFn fn, void *data, unsigned sync_mode)
{
    return sync_mode > 1 ? CUDA_ERROR_INVALID_VALUE : sim_cuLaunchHostFunc(handle, fn, data);
}
