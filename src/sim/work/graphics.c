/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources of a graphics API, of which there is none here: a handle is the number of milliseconds
 * for which graphics are at work with the resource when it is mapped. The stream waits until then.
 */
#include <time.h>

#include "sim/work/stream.h"

#define WORK_MAX_MS 60000u

static void graphics_work(void *handle)
{
    uint64_t ms = (uintptr_t)handle;
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0)
        continue;
}

CUresult sim_cuGraphicsMapResources(unsigned count, CUgraphicsResource *resources, CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && (!count || !resources))
        r = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct work work = {
            .type = CU_GRAPH_NODE_TYPE_HOST, .host = {graphics_work, (void *)resources[i]}};

        r = resources[i] && (uintptr_t)resources[i] <= WORK_MAX_MS ? stream_run(stream, &work)
                                                                   : CUDA_ERROR_INVALID_HANDLE;
    }
    return r;
}

/* ---- contexts that share with graphics: here as any other ---- */

CUresult sim_cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    return sim_cuCtxCreate(context, flags, device);
}

CUresult sim_cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuVDPAUCtxCreate(
    CUcontext *context, unsigned flags, CUdevice device, cuuint32_t vdp_device, void *vdp_address)
{
    (void)vdp_device;
    return vdp_address ? sim_cuCtxCreate(context, flags, device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuVDPAUCtxCreate_v2(
    CUcontext *context, unsigned flags, CUdevice device, cuuint32_t vdp_device, void *vdp_address)
{
    (void)vdp_device;
    return vdp_address ? sim_cuCtxCreate_v2(context, flags, device) : CUDA_ERROR_INVALID_VALUE;
}
