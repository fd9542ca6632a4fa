/* SPDX-License-Identifier: Apache-2.0 */
/* Launches. With the resource manager's ledger they are one load and a jump; the API ledger looks
 * at what a kernel's local memory takes, in functions of their own so that the
 * usual path touches no argument. */
#include "hook/capture.h"
#include "hook/context_memory.h"
#include "hook/hook.h"

/* The table is filled by then: whoever has a function to launch has entered before. */
static inline bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

/* A launch that a capture records takes nothing: the graph's launch does (hook/cuda_graph.c). */
static bool fits(
    CUfunction function, CUstream stream, enum stream_zero zero, struct context_growth *ret_growth)
{
    *ret_growth = (struct context_growth){.charged = false};
    return capture_records(stream, zero) || context_memory_fits_function(function, ret_growth);
}

static CUresult settled(const struct context_growth *growth, CUresult result)
{
    context_memory_settle(growth, result == CUDA_SUCCESS);
    return result;
}

__attribute__((noinline)) static CUresult counted_kernel(__typeof__(cuda.cuLaunchKernel) launch,
    enum stream_zero zero, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct context_growth growth;
    if (!fits(f, hStream, zero, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                                sharedMemBytes, hStream, kernelParams, extra));
}

__attribute__((noinline)) static CUresult counted_kernel_ex(
    __typeof__(cuda.cuLaunchKernelEx) launch, enum stream_zero zero, const CUlaunchConfig *config,
    CUfunction f, void **kernelParams, void **extra)
{
    struct context_growth growth;
    if (!fits(f, config ? config->hStream : NULL, zero, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, launch(config, f, kernelParams, extra));
}

__attribute__((noinline)) static CUresult counted_cooperative(
    __typeof__(cuda.cuLaunchCooperativeKernel) launch, enum stream_zero zero, CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams)
{
    struct context_growth growth;
    if (!fits(f, hStream, zero, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                                sharedMemBytes, hStream, kernelParams));
}

CUresult hook_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_kernel(cuda.cuLaunchKernel, STREAM_ZERO_LEGACY, f, gridDimX, gridDimY,
            gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams,
            extra);
    return cuda.cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
        sharedMemBytes, hStream, kernelParams, extra);
}

CUresult hook_cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_kernel_ex(
            cuda.cuLaunchKernelEx, STREAM_ZERO_LEGACY, config, f, kernelParams, extra);
    return cuda.cuLaunchKernelEx(config, f, kernelParams, extra);
}

CUresult hook_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
    if (counts_by_api())
        return counted_cooperative(cuda.cuLaunchCooperativeKernel, STREAM_ZERO_LEGACY, f, gridDimX,
            gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
            kernelParams);
    return cuda.cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams);
}

CUresult hook_cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_kernel(cuda.cuLaunchKernel_ptsz, STREAM_ZERO_PER_THREAD, f, gridDimX,
            gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
            kernelParams, extra);
    return cuda.cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
}

CUresult hook_cuLaunchKernelEx_ptsz(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_kernel_ex(
            cuda.cuLaunchKernelEx_ptsz, STREAM_ZERO_PER_THREAD, config, f, kernelParams, extra);
    return cuda.cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
}

CUresult hook_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX,
    unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
    unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
    if (counts_by_api())
        return counted_cooperative(cuda.cuLaunchCooperativeKernel_ptsz, STREAM_ZERO_PER_THREAD, f,
            gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
            kernelParams);
    return cuda.cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
        blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
}

/* The launches of CUDA before 4.0. */
CUresult hook_cuLaunch(CUfunction f)
{
    struct context_growth growth;
    if (!counts_by_api())
        return cuda.cuLaunch(f);
    if (!fits(f, NULL, STREAM_ZERO_LEGACY, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, cuda.cuLaunch(f));
}

CUresult hook_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    struct context_growth growth;
    if (!counts_by_api())
        return cuda.cuLaunchGrid(f, grid_width, grid_height);
    if (!fits(f, NULL, STREAM_ZERO_LEGACY, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, cuda.cuLaunchGrid(f, grid_width, grid_height));
}

CUresult hook_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    struct context_growth growth;
    if (!counts_by_api())
        return cuda.cuLaunchGridAsync(f, grid_width, grid_height, hStream);
    if (!fits(f, hStream, STREAM_ZERO_LEGACY, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, cuda.cuLaunchGridAsync(f, grid_width, grid_height, hStream));
}

/* The launch of one device, in its stream's context. */
static bool fits_there(const CUDA_LAUNCH_PARAMS *launch, struct context_growth *ret_growth)
{
    CUcontext context;
    if (cuda.cuStreamGetCtx(launch->hStream, &context) != CUDA_SUCCESS ||
        cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        *ret_growth = (struct context_growth){.charged = false};
        return true;
    }
    bool fit = fits(launch->function, launch->hStream, STREAM_ZERO_LEGACY, ret_growth);
    (void)cuda.cuCtxPopCurrent_v2(&context);
    return fit;
}

/* From the launch of device `at` on; no deeper than a machine has devices. */
static CUresult counted_multi_device(
    CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags, unsigned int at)
{
    struct context_growth growth;
    if (!list || at >= count || at >= VGPU_REGION_DEVICES)
        return cuda.cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    if (!fits_there(&list[at], &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settled(&growth, counted_multi_device(list, count, flags, at + 1));
}

CUresult hook_cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices, unsigned int flags)
{
    if (counts_by_api())
        return counted_multi_device(launchParamsList, numDevices, flags, 0);
    return cuda.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
}
