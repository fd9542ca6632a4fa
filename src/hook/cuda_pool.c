/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: what a pool can serve from what it holds goes in; its growth is judged
 * below the API, or by the pool's own figure under the API ledger. */
#include "hook/hook.h"
#include "hook/pools.h"

#include <stddef.h>

/* Under the API ledger a reservation stands for the pool's growth until the driver tells it. */
static int begin_pooled(struct memory_request *request, int device, size_t bytes)
{
    if (memory_ledger() == MEMORY_LEDGER_API)
        return memory_begin(request, device, bytes, ACCOUNT_BUFFER);
    return memory_begin(request, device, 0, ACCOUNT_BUFFER);
}

static void end_pooled(struct memory_request *request)
{
    pools_refresh(request->device);
    memory_end(request, false, MEMORY_POOL, 0);
}

static void note_pool(CUmemoryPool pool)
{
    CUdevice ordinal;
    if (cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS)
        pools_note(pool, ordinal);
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    int device = hook_current_device();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&request, device, bytesize) == 0) {
            result = cuda.cuMemAllocAsync(dptr, bytesize, hStream);
            if (result == CUDA_SUCCESS)
                (void)pools_note_current();
            end_pooled(&request);
        }
    } while (pools_try_again(result, device, &attempts));
    return result;
}

CUresult hook_cuMemAllocFromPoolAsync(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    int device = hook_current_device();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&request, device, bytesize) == 0) {
            result = cuda.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
            if (result == CUDA_SUCCESS)
                note_pool(pool);
            end_pooled(&request);
        }
    } while (pools_try_again(result, device, &attempts));
    return result;
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    int device = hook_current_device();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&request, device, bytesize) == 0) {
            result = cuda.cuMemAllocAsync_ptsz(dptr, bytesize, hStream);
            if (result == CUDA_SUCCESS)
                (void)pools_note_current();
            end_pooled(&request);
        }
    } while (pools_try_again(result, device, &attempts));
    return result;
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    int device = hook_current_device();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&request, device, bytesize) == 0) {
            result = cuda.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream);
            if (result == CUDA_SUCCESS)
                note_pool(pool);
            end_pooled(&request);
        }
    } while (pools_try_again(result, device, &attempts));
    return result;
}

CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFreeAsync(dptr, hStream);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    return result;
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFreeAsync_ptsz(dptr, hStream);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    return result;
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolCreate(pool, poolProps);
    if (result == CUDA_SUCCESS && poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        pools_note(*pool, poolProps->location.id);
    return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
    hook_enter();
    pools_forget(pool);
    struct memory_record record = memory_take(MEMORY_POOL, (uintptr_t)pool);
    CUresult result = cuda.cuMemPoolDestroy(pool);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_POOL, (uintptr_t)pool);
    return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolTrimTo(pool, minBytesToKeep);
    pools_refresh(hook_current_device());
    return result;
}

CUresult hook_cuDeviceGraphMemTrim(CUdevice device)
{
    hook_enter();
    CUresult result = cuda.cuDeviceGraphMemTrim(device);
    pools_refresh(hook_device(device));
    return result;
}
