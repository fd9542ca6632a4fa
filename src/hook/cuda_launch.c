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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
        blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchKernelEx(config, f, kernelParams, extra);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX,
        blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
        blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
    struct context_growth growth;
    if (!context_memory_fits_function(f, &growth))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ,
        blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
    context_memory_settle(&growth, result == CUDA_SUCCESS);
    return result;
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
