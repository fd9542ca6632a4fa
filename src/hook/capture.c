/* SPDX-License-Identifier: Apache-2.0 */
/* Captures, as our hooks must know them. */
#include "hook/capture.h"

#include "hook/hook.h"

#include <stddef.h>

bool capture_records(CUstream stream, enum stream_zero zero)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream && zero == STREAM_ZERO_PER_THREAD)
        stream = CU_STREAM_PER_THREAD;
    CUresult result = cuda.cuStreamIsCapturing(stream, &status);
    /* The legacy stream beside a capturing stream that it would wait for. */
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return true;
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct capture_relaxed capture_relax(void)
{
    struct capture_relaxed former = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    former.relaxed = cuda.cuThreadExchangeStreamCaptureMode(&former.mode) == CUDA_SUCCESS;
    return former;
}

void capture_restore(struct capture_relaxed *former)
{
    /* Asked once more: a thread that stays relaxed would record what its program must not. */
    if (former->relaxed && cuda.cuThreadExchangeStreamCaptureMode(&former->mode) != CUDA_SUCCESS)
        (void)cuda.cuThreadExchangeStreamCaptureMode(&former->mode);
}
