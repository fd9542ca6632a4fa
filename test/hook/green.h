/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts for tests. */
#ifndef VGPU_TEST_GREEN_H
#define VGPU_TEST_GREEN_H

#include "abi/cuda.h"
#include "bed.h"

/* A descriptor of at least eight of the device's multiprocessors. */
static inline CUdevResourceDesc green_descriptor(CUdevice device)
{
    CUdevResource all, part;
    CUdevResourceDesc descriptor = NULL;
    unsigned one = 1;
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    REQUIRE(CU(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    REQUIRE(CU(cuDevSmResourceSplitByCount)(&part, &one, &all, NULL, 0, 8) == CUDA_SUCCESS);
    REQUIRE(CU(cuDevResourceGenerateDesc)(&descriptor, &part, 1) == CUDA_SUCCESS);
    return descriptor;
}

#define GREEN_FLAGS 1u /* CU_GREEN_CTX_DEFAULT_STREAM */

static inline CUresult green_create(CUgreenCtx *ret_green)
{
    return CU(cuGreenCtxCreate)(ret_green, green_descriptor(0), 0, GREEN_FLAGS);
}

static inline CUgreenCtx green_make(void)
{
    CUgreenCtx green = NULL;
    REQUIRE(green_create(&green) == CUDA_SUCCESS);
    return green;
}

static inline CUstream green_stream(CUgreenCtx green)
{
    CUstream stream = NULL;
    REQUIRE(CU(cuGreenCtxStreamCreate)(&stream, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    return stream;
}

/* Makes it the thread's current context, until green_leave. */
static inline void green_enter(CUgreenCtx green)
{
    CUcontext context;
    REQUIRE(CU(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS);
}

static inline void green_leave(void)
{
    CUcontext context;
    REQUIRE(CU(cuCtxPopCurrent_v2)(&context) == CUDA_SUCCESS);
}

#endif
