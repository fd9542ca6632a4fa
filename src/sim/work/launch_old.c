/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as before CUDA 4.0, where a function keeps its block, shared memory and parameters, and
 * the cooperative launch over several devices. */
#include "sim/work/launch.h"

#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 4096

struct setting {
    struct setting *next;
    CUfunction function;
    int block[3];
    unsigned shared_bytes;
    size_t bytes;
    char buffer[PARAMETERS_MAX];
};

static struct setting *settings;

/* NULL where the handle is no function's. */
static struct setting *setting_of(CUfunction function)
{
    struct kernel_facts facts;
    struct setting *setting = settings;

    if (!library_kernel_facts(function, &facts))
        return NULL;
    while (setting && setting->function != function)
        setting = setting->next;
    if (!setting) {
        setting = calloc(1, sizeof *setting);
        if (!setting)
            return NULL;
        setting->function = function;
        setting->next = settings;
        settings = setting;
    }
    return setting;
}

CUresult sim_cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    CUDA_LOCKED;
    struct setting *setting = setting_of(function);

    if (!setting)
        return CUDA_ERROR_INVALID_HANDLE;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(setting->block, (int[3]){x, y, z}, sizeof setting->block);
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetSharedSize(CUfunction function, unsigned int bytes)
{
    CUDA_LOCKED;
    struct setting *setting = setting_of(function);

    if (!setting)
        return CUDA_ERROR_INVALID_HANDLE;
    setting->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult sim_cuParamSetSize(CUfunction function, unsigned int bytes)
{
    CUDA_LOCKED;
    struct setting *setting = setting_of(function);

    if (!setting)
        return CUDA_ERROR_INVALID_HANDLE;
    if (bytes > PARAMETERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    setting->bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult sim_cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes)
{
    CUDA_LOCKED;
    struct setting *setting = setting_of(function);

    if (!setting)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || offset < 0 || bytes > PARAMETERS_MAX || (size_t)offset > PARAMETERS_MAX - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(setting->buffer + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult sim_cuParamSeti(CUfunction function, int offset, unsigned int value)
{
    return sim_cuParamSetv(function, offset, &value, sizeof value);
}

CUresult sim_cuParamSetf(CUfunction function, int offset, float value)
{
    return sim_cuParamSetv(function, offset, &value, sizeof value);
}

static CUresult launch_old(CUfunction function, int width, int height, CUstream stream)
{
    CUDA_LOCKED;
    struct setting *setting = setting_of(function);

    if (!setting)
        return CUDA_ERROR_INVALID_HANDLE;
    if (width <= 0 || height <= 0 || !setting->block[0])
        return CUDA_ERROR_INVALID_VALUE;

    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, setting->buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
        &setting->bytes, CU_LAUNCH_PARAM_END};

    return sim_cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1,
        (unsigned)setting->block[0], (unsigned)setting->block[1], (unsigned)setting->block[2],
        setting->shared_bytes, stream, NULL, extra);
}

CUresult sim_cuLaunch(CUfunction function)
{
    return launch_old(function, 1, 1, NULL);
}

CUresult sim_cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch_old(function, width, height, NULL);
}

CUresult sim_cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch_old(function, width, height, stream);
}

/* Each on its stream's device: no two on one, none on the legacy stream. */
CUresult sim_cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
    CUDA_LOCKED;
    CUresult r = list && count && flags <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct stream *stream;

        r = (uintptr_t)list[i].hStream > 2 ? stream_get(list[i].hStream, &stream)
                                           : CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS && stream->capture)
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = sim_cuLaunchKernel(list[i].function, list[i].gridDimX, list[i].gridDimY,
            list[i].gridDimZ, list[i].blockDimX, list[i].blockDimY, list[i].blockDimZ,
            list[i].sharedMemBytes, list[i].hStream, list[i].kernelParams, NULL);
    return r;
}
