/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: what a pool can serve from what it holds goes in; its growth is judged
 * below the API, or by the pool's own figure under the API ledger. */
#include "hook/capture.h"
#include "hook/hook.h"
#include "hook/pace.h"
#include "hook/pools.h"
#include "limit/rm_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The pool's growth is charged below the API; under the API ledger a reservation stands for it
 * until the pool tells its size. Nothing here costs a driver call more unless it is refused. */
struct pooled {
    struct memory_request request;
    enum account_kind former_kind;
    CUdevice ordinal;
    CUmemoryPool pool;
    struct pool_growth growth;
    bool counted;
};

/* The memory is of the stream's device, whichever is current. */
static bool enter_stream(CUstream stream)
{
    CUcontext context;
    return (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD &&
           cuda.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
           cuda.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

/* As hook_identify, and the pool where none is named. */
static CUresult identify_pool(struct pooled *pooled, CUstream stream, int *ret_device)
{
    CUcontext context;
    bool entered = !pooled->pool && enter_stream(stream);
    CUresult result = pools_ordinal(pooled->pool, &pooled->ordinal);
    if (result == CUDA_SUCCESS && !pooled->pool)
        result = cuda.cuDeviceGetMemPool(&pooled->pool, pooled->ordinal);
    if (entered)
        (void)cuda.cuCtxPopCurrent_v2(&context);
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    if (result != CUDA_SUCCESS)
        return container_unidentified_device() == CONTAINER_DEVICE_CLOSED ? result : CUDA_SUCCESS;
    return hook_identify(pooled->ordinal, ret_device);
}

static CUresult begin_counted(struct pooled *pooled, size_t bytes, CUstream stream)
{
    int device;
    struct capture_relaxed former = capture_relax();
    pooled->ordinal = -1;
    CUresult result = identify_pool(pooled, stream, &device);
    if (result == CUDA_SUCCESS)
        pooled->growth = pools_growth(pooled->pool, bytes);
    capture_restore(&former);
    if (result != CUDA_SUCCESS)
        return result;
    return memory_begin(&pooled->request, device, pooled->growth.bytes, ACCOUNT_BUFFER) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* pool NULL: the current one of the current device. What a capture records takes nothing. */
static CUresult begin_pooled(
    struct pooled *pooled, size_t bytes, CUmemoryPool pool, CUstream stream, enum stream_zero zero)
{
    pooled->pool = pool;
    pooled->counted = memory_ledger() == MEMORY_LEDGER_API && !capture_records(stream, zero);
    pools_note_use();
    if (pooled->counted)
        return begin_counted(pooled, bytes, stream);
    pooled->former_kind = rm_memory_set_kind(ACCOUNT_BUFFER);
    return CUDA_SUCCESS;
}

static CUresult end_counted(struct pooled *pooled, CUresult result, const CUdeviceptr *dptr,
    CUstream stream, __typeof__(cuda.cuMemFreeAsync) undo)
{
    int device = pooled->request.device;
    bool overgrown = result == CUDA_SUCCESS && pools_charge(pooled->pool, device, &pooled->growth);
    memory_end(&pooled->request, false, MEMORY_POOL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    /* What lies unused in a pool may be in pieces too small for the request: the pool has then
     * grown by more than was reserved. */
    if (!overgrown || device < 0 || account_check((unsigned)device, 0) == 0) {
        pools_note_allocated(pooled->pool, *dptr);
        return result;
    }
    (void)undo(*dptr, stream);
    struct capture_relaxed former = capture_relax();
    (void)cuda.cuMemPoolTrimTo(pooled->pool, 0);
    capture_restore(&former);
    pools_refresh(pooled->ordinal);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end_pooled(struct pooled *pooled, CUresult result, const CUdeviceptr *dptr,
    CUstream stream, __typeof__(cuda.cuMemFreeAsync) undo)
{
    if (pooled->counted)
        return end_counted(pooled, result, dptr, stream, undo);
    rm_memory_set_kind(pooled->former_kind);
    return result;
}

static CUresult allocate(CUdeviceptr *dptr, size_t bytes, CUstream stream, enum stream_zero zero,
    __typeof__(cuda.cuMemAllocAsync) real, __typeof__(cuda.cuMemFreeAsync) undo)
{
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = begin_pooled(&pooled, bytes, NULL, stream, zero);
        if (result == CUDA_SUCCESS)
            result = end_pooled(&pooled, real(dptr, bytes, stream), dptr, stream, undo);
    } while (pools_try_again(result, &attempts));
    return result;
}

static CUresult allocate_from(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
    enum stream_zero zero, __typeof__(cuda.cuMemAllocFromPoolAsync) real,
    __typeof__(cuda.cuMemFreeAsync) undo)
{
    unsigned attempts = 0;
    CUresult result;
    do {
        struct pooled pooled;
        result = begin_pooled(&pooled, bytes, pool, stream, zero);
        if (result == CUDA_SUCCESS)
            result = end_pooled(&pooled, real(dptr, bytes, pool, stream), dptr, stream, undo);
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    return allocate(
        dptr, bytesize, hStream, STREAM_ZERO_LEGACY, cuda.cuMemAllocAsync, cuda.cuMemFreeAsync);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hook_enter();
    return allocate(dptr, bytesize, hStream, STREAM_ZERO_PER_THREAD, cuda.cuMemAllocAsync_ptsz,
        cuda.cuMemFreeAsync_ptsz);
}

CUresult hook_cuMemAllocFromPoolAsync(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    return allocate_from(dptr, bytesize, pool, hStream, STREAM_ZERO_LEGACY,
        cuda.cuMemAllocFromPoolAsync, cuda.cuMemFreeAsync);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(
    CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    hook_enter();
    return allocate_from(dptr, bytesize, pool, hStream, STREAM_ZERO_PER_THREAD,
        cuda.cuMemAllocFromPoolAsync_ptsz, cuda.cuMemFreeAsync_ptsz);
}

static void freed(CUdeviceptr dptr, const struct memory_record *record, CUresult result)
{
    memory_taken(record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    if (result == CUDA_SUCCESS)
        pools_note_freed(dptr);
}

CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFreeAsync(dptr, hStream);
    freed(dptr, &record, result);
    return result;
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFreeAsync_ptsz(dptr, hStream);
    freed(dptr, &record, result);
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
    return pools_destroy(pool);
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolTrimTo(pool, minBytesToKeep);
    CUdevice ordinal;
    if (memory_ledger() != MEMORY_LEDGER_API)
        return result;
    if (pools_ordinal(pool, &ordinal) == CUDA_SUCCESS)
        pools_refresh(ordinal);
    else
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
