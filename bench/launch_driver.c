/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 for bench/launch.c whose calls return at once: one device, launches that take
 * STUB_LAUNCH_LOOPS turns of the processor, kernels of STUB_KERNEL_NS on events that are complete
 * as soon as they are recorded. Its context is there and current from the start, so that nothing is
 * asked about the resource manager, which it has none of. */
#include "abi/cuda_api.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct event {
    uint64_t at_ns;
};

static uint64_t kernel_ns;
static unsigned loops;
static char context;
static _Thread_local unsigned launched __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void read_environment(void)
{
    const char *kernel = getenv("STUB_KERNEL_NS"), *turns = getenv("STUB_LAUNCH_LOOPS");
    kernel_ns = kernel ? strtoull(kernel, NULL, 10) : 0;
    loops = turns ? (unsigned)strtoul(turns, NULL, 10) : 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline CUresult launch(void)
{
    launched = 1;
    for (unsigned i = 0; i < loops; i++)
        __asm__ volatile("");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned int Flags)
{
    (void)Flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    (void)dev;
    memset(uuid, 0x11, sizeof(*uuid));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    (void)dev;
    *bytes = (size_t)1 << 36;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)1 << 36;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    *pctx = (CUcontext)&context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    (void)Flags;
    *phEvent = calloc(1, sizeof(struct event));
    return *phEvent ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuEventDestroy_v2(CUevent hEvent)
{
    free(hEvent);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    (void)hStream;
    ((struct event *)hEvent)->at_ns = now_ns() + (launched ? kernel_ns : 0);
    launched = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent hEvent)
{
    (void)hEvent;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    int64_t passed = (int64_t)(((struct event *)hEnd)->at_ns - ((struct event *)hStart)->at_ns);
    *pMilliseconds = (float)((double)passed / 1e6);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream hStream)
{
    (void)hStream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    (void)hStream;
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    (void)f, (void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY;
    (void)blockDimZ, (void)sharedMemBytes, (void)hStream, (void)kernelParams, (void)extra;
    return launch();
}

EXPORT CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    (void)hGraphExec;
    (void)hStream;
    return launch();
}
