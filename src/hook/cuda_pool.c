/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: what a pool can serve from what it holds goes in; its growth is judged
 * below the API, or by the pool's own figure under the API ledger. */
#include "hook/hook.h"
#include "hook/pools.h"
#include "limit/rm_memory.h"

#include <stddef.h>

/* The pool's growth is charged below the API; under the API ledger a reservation stands for it
 * until the pool tells its size. Nothing here costs a driver call more unless it is refused. */
struct pooled {
    struct memory_request request;
    enum account_kind former_kind;
    CUdevice ordinal;
    bool counted;
};

static int begin_counted(struct pooled *pooled, size_t bytes, CUmemoryPool pool)
{
    if (cuda.cuCtxGetDevice(&pooled->ordinal) != CUDA_SUCCESS)
        pooled->ordinal = 0;
    if (pool)
        pooled->ordinal = pools_ordinal(pool, pooled->ordinal);
    else
        (void)cuda.cuDeviceGetMemPool(&pool, pooled->ordinal);
    return memory_begin(
        &pooled->request, hook_device(pooled->ordinal), pools_growth(pool, bytes), ACCOUNT_BUFFER);
}

/* pool NULL: the current one of the current device. */
static int begin_pooled(struct pooled *pooled, size_t bytes, CUmemoryPool pool)
{
    pooled->counted = memory_ledger() == MEMORY_LEDGER_API;
    pools_note_use();
    if (pooled->counted)
        return begin_counted(pooled, bytes, pool);
    pooled->former_kind = rm_memory_set_kind(ACCOUNT_BUFFER);
    return 0;
}

static void end_pooled(struct pooled *pooled)
{
    if (pooled->counted) {
        pools_refresh(pooled->ordinal);
        memory_end(&pooled->request, false, MEMORY_POOL, 0);
    } else {
        rm_memory_set_kind(pooled->former_kind);
    }
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&pooled, bytesize, NULL) == 0) {
            result = cuda.cuMemAllocAsync(dptr, bytesize, hStream);
            end_pooled(&pooled);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAllocFromPoolAsync(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&pooled, bytesize, pool) == 0) {
            result = cuda.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
            end_pooled(&pooled);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&pooled, bytesize, NULL) == 0) {
            result = cuda.cuMemAllocAsync_ptsz(dptr, bytesize, hStream);
            end_pooled(&pooled);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (begin_pooled(&pooled, bytesize, pool) == 0) {
            result = cuda.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream);
            end_pooled(&pooled);
        }
    } while (pools_try_again(result, &attempts));
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
    /* The driver keeps the memory of a destroyed pool until its last allocation is freed, which is
     * not told: a pool that is destroyed in use stays charged under the API ledger. */
    bool unused = memory_ledger() != MEMORY_LEDGER_API || !pools_used_bytes(pool);
    pools_forget(pool);
    struct memory_record record = memory_take(MEMORY_POOL, (uintptr_t)pool);
    CUresult result = cuda.cuMemPoolDestroy(pool);
    memory_taken(&record, result == CUDA_SUCCESS && unused, MEMORY_POOL, (uintptr_t)pool);
    return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolTrimTo(pool, minBytesToKeep);
    pools_refresh_current();
    return result;
}

CUresult hook_cuDeviceGraphMemTrim(CUdevice device)
{
    hook_enter();
    CUresult result = cuda.cuDeviceGraphMemTrim(device);
    pools_refresh(device);
    return result;
}

/* A pool gives memory back at synchronisation (its release threshold says how much). */
static inline CUresult synchronised(CUresult result)
{
    if (__builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0))
        pools_refresh_current();
    return result;
}

CUresult hook_cuCtxSynchronize(void)
{
    return synchronised(cuda.cuCtxSynchronize());
}

CUresult hook_cuStreamSynchronize(CUstream hStream)
{
    return synchronised(cuda.cuStreamSynchronize(hStream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream hStream)
{
    return synchronised(cuda.cuStreamSynchronize_ptsz(hStream));
}

CUresult hook_cuEventSynchronize(CUevent hEvent)
{
    return synchronised(cuda.cuEventSynchronize(hEvent));
}
