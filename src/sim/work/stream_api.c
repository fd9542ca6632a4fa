/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of streams: making, asking, waiting for and ending them. */
#include "sim/work/stream.h"

/* Asking a context is asking its streams, in every mode. */
static CUresult context_synchronise(struct context *context)
{
    {
        CUDA_LOCKED;

        if (capture_spoil_context(context))
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult r = stream_wait_context(context);
    return context && sim_group_is_failed(&context->timeline) ? CUDA_ERROR_LAUNCH_FAILED : r;
}

CUresult sim_cuCtxSynchronize(void)
{
    return context_synchronise(context_current());
}

CUresult sim_cuCtxSynchronize_v2(CUcontext handle)
{
    struct context *context;

    {
        CUDA_LOCKED;

        context = context_of(handle);
        if (context && context->home)
            context = context->home;
    }
    return context ? context_synchronise(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
    CUDA_LOCKED;
    struct stream *stream;

    if (!ret || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream = stream_create(context_current(), context_current_green(), flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamCreate(CUstream *ret, unsigned int flags)
{
    return sim_cuStreamCreateWithPriority(ret, flags, 0);
}

CUresult sim_cuStreamDestroy_v2(CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_named(handle, &stream);

    if (r == CUDA_SUCCESS)
        stream_destroy(stream);
    return r;
}

CUresult sim_cuStreamDestroy(CUstream handle)
{
    return sim_cuStreamDestroy_v2(handle);
}

/* Asking or waiting while it captures is an error that spoils the capture. */
static CUresult stream_get_outside_capture(CUstream handle, struct stream **ret_stream)
{
    CUDA_LOCKED;
    CUresult r = stream_get(handle, ret_stream);

    if (r == CUDA_SUCCESS && (*ret_stream)->capture) {
        capture_invalidate((*ret_stream)->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r;
}

CUresult sim_cuStreamQuery(CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get_outside_capture(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    return stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_cuStreamSynchronize(CUstream handle)
{
    struct stream *stream;
    CUresult r = stream_get_outside_capture(handle, &stream);

    return r == CUDA_SUCCESS ? stream_wait(stream) : r;
}

CUresult sim_cuStreamGetPriority(CUstream handle, int *priority)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !priority)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *priority = stream->priority;
    return r;
}

CUresult sim_cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !flags)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *flags = stream->flags;
    return r;
}

CUresult sim_cuStreamGetId(CUstream handle, unsigned long long *id)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !id)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *id = stream->id;
    return r;
}

CUresult sim_cuStreamGetCtx(CUstream handle, CUcontext *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !ret)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = (CUcontext)stream->context;
    return r;
}

CUresult sim_cuStreamGetCtx_v2(CUstream handle, CUcontext *ret, CUgreenCtx *ret_green)
{
    CUresult r = sim_cuStreamGetCtx(handle, ret);

    return r == CUDA_SUCCESS && ret_green ? sim_cuStreamGetGreenCtx(handle, ret_green) : r;
}

CUresult sim_cuStreamGetDevice(CUstream handle, CUdevice *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !ret)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = stream->context->device->ordinal;
    return r;
}
