/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts: a part of a device's multiprocessors under its primary context, which each
 * retains; memory, modules and events are the primary context's. Seen on an H200 (driver
 * 580.159.04), where the documentation says less or otherwise: the handle is that of the context
 * that cuCtxFromGreenCtx gives, and that of a stream's context is the primary's; each takes 4 or 6
 * MiB; one that goes lets its work run on, but its streams answer CONTEXT_IS_DESTROYED; meanwhile
 * the primary context is not reset (NOT_PERMITTED).
 */
#include <stdlib.h>

#include "sim/cuda/context.h"
#include "sim/cuda/resource.h"
#include "sim/work/stream.h"

#define GREEN_BYTES (6 * MIB)
#define GREEN_DEFAULT_STREAM 1u /* CU_GREEN_CTX_DEFAULT_STREAM: required */

struct green {
    struct context context; /* first: what a handle leads to */
    struct rm_object memory;
    CUdevResource resource;
};

static struct green *green_of(CUgreenCtx handle)
{
    struct context *context = handle ? context_of((CUcontext)handle) : NULL;

    return context && context->home ? (struct green *)context : NULL;
}

static CUresult green_start(struct green *green, struct device *device, struct context *home)
{
    CUresult r = rm_memory_create(device, GREEN_BYTES, &green->memory);

    if (r != CUDA_SUCCESS)
        return r;
    green->context.device = device;
    green->context.home = home;
    green->context.version = home->version;
    green->context.id = context_next_id();
    green->context.legacy = stream_create(home, &green->context, CU_STREAM_DEFAULT, 0);
    if (green->context.legacy)
        return CUDA_SUCCESS;
    rm_memory_destroy(device, &green->memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult green_create(
    struct device *device, const CUdevResource *resource, struct green **ret_green)
{
    struct green *green = calloc(1, sizeof *green);
    CUcontext home;
    CUresult r;

    if (!green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = sim_cuDevicePrimaryCtxRetain(&home, device->ordinal);
    if (r == CUDA_SUCCESS) {
        r = green_start(green, device, device->primary);
        if (r != CUDA_SUCCESS)
            (void)sim_cuDevicePrimaryCtxRelease_v2(device->ordinal);
    }
    if (r != CUDA_SUCCESS) {
        free(green);
        return r;
    }
    green->resource = *resource;
    green->context.live = true;
    device->greens++;
    object_add(&green->context.object, OBJECT_CONTEXT);
    *ret_green = green;
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxCreate(
    CUgreenCtx *ret, CUdevResourceDesc descriptor, CUdevice ordinal, unsigned int flags)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);
    struct green *green;
    CUdevResource resource;
    CUresult r;

    if (!ret || flags != GREEN_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!resource_of_descriptor(descriptor, &resource))
        return CUDA_ERROR_INVALID_VALUE;
    if (resource_origin(&resource).ordinal != ordinal)
        return CUDA_ERROR_INVALID_DEVICE;
    r = green_create(device, &resource, &green);
    if (r == CUDA_SUCCESS)
        *ret = (CUgreenCtx)green;
    return r;
}

/* Its other streams are leaked: each call with one of them finds that its context is gone. */
CUresult sim_cuGreenCtxDestroy(CUgreenCtx handle)
{
    CUDA_LOCKED;
    struct green *green = green_of(handle);

    if (!green)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    stream_destroy(green->context.legacy);
    green->context.legacy = NULL;
    rm_memory_destroy(green->context.device, &green->memory);
    green->context.live = false;
    object_remove(&green->context.object);
    context_bury(&green->context);
    green->context.device->greens--;
    return sim_cuDevicePrimaryCtxRelease_v2(green->context.device->ordinal);
}

CUresult sim_cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx handle)
{
    CUDA_LOCKED;
    struct green *green = green_of(handle);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = (CUcontext)&green->context;
    return CUDA_SUCCESS;
}

/* What is left to split of it again. */
static CUdevResource green_resource(const struct green *green)
{
    CUdevResource resource = resource_whole(green->context.device);

    resource.sm.smCount = green->resource.sm.smCount;
    return resource;
}

CUresult sim_cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *ret, CUdevResourceType type)
{
    CUDA_LOCKED;
    const struct green *green = green_of(handle);

    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *ret = green_resource(green);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevResource(CUcontext handle, CUdevResource *ret, CUdevResourceType type)
{
    CUDA_LOCKED;
    const struct context *context = context_of(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->home)
        return sim_cuGreenCtxGetDevResource((CUgreenCtx)context, ret, type);
    return sim_cuDeviceGetDevResource(context->device->ordinal, ret, type);
}

CUresult sim_cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *ret)
{
    CUDA_LOCKED;
    const struct green *green = green_of(handle);

    if (!green)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = green->context.id;
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxStreamCreate(
    CUstream *ret, CUgreenCtx handle, unsigned int flags, int priority)
{
    CUDA_LOCKED;
    struct green *green = green_of(handle);
    struct stream *stream;

    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ret || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    stream = stream_create(green->context.home, &green->context, flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_look(handle, &stream);

    if (r == CUDA_SUCCESS && !ret)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = (CUgreenCtx)stream->green;
    return r;
}

/* Streams of a green context are its primary context's, too. */
static struct stream *first_stream(const struct context *context)
{
    return context->home ? context->home->streams : context->streams;
}

static bool is_stream_of(const struct stream *stream, const struct context *context)
{
    return !context->home || stream->green == context;
}

/* Spoils what its streams capture. */
static bool captures(const struct context *context)
{
    bool found = false;

    for (struct stream *stream = first_stream(context); stream; stream = stream->next) {
        if (is_stream_of(stream, context) && stream->capture) {
            capture_invalidate(stream->capture);
            found = true;
        }
    }
    return found;
}

/* Here its default stream waits for the others and is what is recorded. */
CUresult sim_cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event)
{
    CUDA_LOCKED;
    struct green *green = green_of(handle);

    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (captures(&green->context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (struct stream *stream = green->context.home->streams; stream; stream = stream->next) {
        if (stream->green == &green->context && stream != green->context.legacy)
            stream_append_after(green->context.legacy, &stream->queue.last);
    }
    return sim_cuEventRecord(event, (CUstream)green->context.legacy);
}

/* Streams that are made later do not wait. */
static CUresult wait_event(const struct context *context, CUevent event)
{
    CUresult r = CUDA_SUCCESS;

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (captures(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (struct stream *stream = first_stream(context); stream && r == CUDA_SUCCESS;
         stream = stream->next) {
        if (is_stream_of(stream, context) && !stream->gone)
            r = sim_cuStreamWaitEvent((CUstream)stream, event, 0);
    }
    return r;
}

CUresult sim_cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event)
{
    CUDA_LOCKED;
    const struct green *green = green_of(handle);

    return wait_event(green ? &green->context : NULL, event);
}

CUresult sim_cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    CUDA_LOCKED;

    return wait_event(handle ? context_of(handle) : NULL, event);
}
