/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures into command lists of graphics APIs. There is no such API here: what a stream captures
 * so is never run. That any context may do it is the simulator's own.
 */
#include "sim/work/stream.h"

static CUresult list_set(CUstream handle, bool begin)
{
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (stream->capture || stream == stream_default(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->list == begin)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->list = begin;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamBeginCaptureToCig(CUstream handle, CUstreamCigCaptureParams *params)
{
    CUDA_LOCKED;

    return params && params->streamCigParams && params->streamCigParams->streamSharedData
               ? list_set(handle, true)
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuStreamEndCaptureToCig(CUstream handle)
{
    CUDA_LOCKED;

    return list_set(handle, false);
}
