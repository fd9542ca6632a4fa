/* SPDX-License-Identifier: Apache-2.0 */
/* Launches. With the resource manager's ledger they are one load and a jump; the API ledger looks
 * at what a kernel's local memory takes, in functions of their own so that the
 * usual path touches no argument. */
#include "hook/context_memory.h"
#include "hook/hook.h"

/* The table is filled by then: whoever has a function to launch has entered before. */
static inline bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

__attribute__((noinline)) static CUresult counted_cuLaunchKernel(CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams, void **extra)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
        sharedMemBytes, hStream, kernelParams, extra);
}

CUresult hook_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
            blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
    return cuda.cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
        sharedMemBytes, hStream, kernelParams, extra);
}

__attribute__((noinline)) static CUresult counted_cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchKernelEx(config, f, kernelParams, extra);
}

CUresult hook_cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_cuLaunchKernelEx(config, f, kernelParams, extra);
    return cuda.cuLaunchKernelEx(config, f, kernelParams, extra);
}

__attribute__((noinline)) static CUresult counted_cuLaunchCooperativeKernel(CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams);
}

CUresult hook_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
    if (counts_by_api())
        return counted_cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX,
            blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
    return cuda.cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams);
}

__attribute__((noinline)) static CUresult counted_cuLaunchKernel_ptsz(CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams, void **extra)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
}

CUresult hook_cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
            blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
    return cuda.cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
}

__attribute__((noinline)) static CUresult counted_cuLaunchKernelEx_ptsz(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
}

CUresult hook_cuLaunchKernelEx_ptsz(
    const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (counts_by_api())
        return counted_cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
    return cuda.cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
}

__attribute__((noinline)) static CUresult counted_cuLaunchCooperativeKernel_ptsz(CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams)
{
    if (!context_memory_fits_function(f))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
        blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
}

CUresult hook_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX,
    unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
    unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
    if (counts_by_api())
        return counted_cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
            blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
    return cuda.cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
        blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
}
