/* SPDX-License-Identifier: Apache-2.0 */
/* Small calls: callbacks, managed memory of a stream, texture objects, the profiler's switch. */
#include <stdlib.h>

#include "sim/work/stream.h"

struct callback {
    CUstreamCallback fn;
    CUstream stream;
    void *data;
};

static void callback_call(void *data)
{
    struct callback callback = *(struct callback *)data;

    free(data);
    callback.fn(callback.stream, CUDA_SUCCESS, callback.data);
}

CUresult sim_cuStreamAddCallback(
    CUstream handle, CUstreamCallback fn, void *data, unsigned int flags)
{
    stream_admit(handle);
    CUDA_LOCKED;
    struct stream *stream;
    struct callback *callback;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_HOST};
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!fn || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    callback = malloc(sizeof *callback);
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){fn, handle, data};
    work.host = (CUDA_HOST_NODE_PARAMS){callback_call, callback};
    r = stream_run(stream, &work);
    if (r != CUDA_SUCCESS)
        free(callback);
    return r;
}

CUresult sim_cuStreamAttachMemAsync(
    CUstream handle, CUdeviceptr address, size_t bytes, unsigned int flags)
{
    CUDA_LOCKED;
    const struct allocation *allocation = allocation_find(address);
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    (void)bytes;
    (void)flags;
    if (r == CUDA_SUCCESS && (!allocation || (allocation->kind != ALLOCATION_MANAGED &&
                                                 allocation->place != PLACE_MANAGED)))
        r = CUDA_ERROR_INVALID_VALUE;
    return r;
}

struct texture {
    struct object object;
    CUDA_RESOURCE_DESC resource;
};

CUresult sim_cuTexObjectCreate(CUtexObject *ret, const CUDA_RESOURCE_DESC *resource,
    const CUDA_TEXTURE_DESC *texture_desc, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CUDA_LOCKED;
    struct texture *texture;

    (void)view;
    if (!ret || !resource || !texture_desc)
        return CUDA_ERROR_INVALID_VALUE;
    texture = calloc(1, sizeof *texture);
    if (!texture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    texture->resource = *resource;
    object_add(&texture->object, OBJECT_TEXTURE);
    *ret = (uintptr_t)texture;
    return CUDA_SUCCESS;
}

CUresult sim_cuTexObjectDestroy(CUtexObject handle)
{
    CUDA_LOCKED;
    struct texture *texture = object_find((void *)(uintptr_t)handle, OBJECT_TEXTURE);

    if (!texture)
        return CUDA_ERROR_INVALID_VALUE;
    object_remove(&texture->object);
    free(texture);
    return CUDA_SUCCESS;
}

CUresult sim_cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult sim_cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}
