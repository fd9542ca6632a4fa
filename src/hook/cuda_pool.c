/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: what a pool can serve from what it holds goes in; its growth is judged
 * below the API, or by the pool's own figure under the API ledger and for managed memory. Pools of
 * host memory are not limited. */
#include "pace/capture.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "memory/pools.h"
#include "rm/rm_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocation from a pool, by a loop as in memory/allocation.h. The pool's growth is charged
 * below the API; under the API ledger a reservation stands for it until the pool tells its size. A
 * request that is served costs no further driver call. */
struct pooled {
    CUresult result; /* the program's answer */
    unsigned attempts;
    size_t bytes;
    CUmemoryPool named; /* NULL: the current pool of the current device */
    CUstream stream;
    enum stream_zero zero;
    /* Of the last attempt: */
    struct memory_request request;
    enum account_kind former_kind;
    CUmemoryPool pool;
    struct pool_place place; /* where it is counted, or of host memory */
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

/* As device_identify, and the pool where none is named. */
static CUresult identify_pool(struct pooled *pooled, int *ret_device)
{
    CUcontext context;
    bool entered = pools_goes_by_stream(pooled->pool) && enter_stream(pooled->stream);
    CUresult result = pooled->pool ? pools_place(pooled->pool, &pooled->place)
                                   : pools_place_current(&pooled->pool, &pooled->place);
    if (entered)
        (void)cuda.cuCtxPopCurrent_v2(&context);
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    if (result != CUDA_SUCCESS)
        return container_unidentified_device() == CONTAINER_DEVICE_CLOSED ? result : CUDA_SUCCESS;
    return device_identify(pooled->place.ordinal, ret_device);
}

/* Whether such a pool is counted here. */
static bool counts(enum pool_kind kind)
{
    return kind == POOL_MANAGED || (kind == POOL_DEVICE && memory_ledger() == MEMORY_LEDGER_API);
}

static CUresult begin_counted(struct pooled *pooled)
{
    int device;
    struct capture_relaxed former = capture_relax();
    CUresult result = identify_pool(pooled, &device);
    pooled->counted = counts(pooled->place.kind);
    if (result == CUDA_SUCCESS && pooled->counted)
        pooled->growth = pools_growth(pooled->pool, pooled->place.kind, pooled->bytes);
    capture_restore(&former);
    if (result != CUDA_SUCCESS || !pooled->counted)
        return result;
    return memory_begin(&pooled->request, device, pooled->growth.bytes,
               pooled->place.kind == POOL_MANAGED ? ACCOUNT_MANAGED : ACCOUNT_BUFFER) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What a capture records takes nothing. Not CUDA_SUCCESS: the program's answer, without asking. */
static CUresult attempt(struct pooled *pooled)
{
    pooled->pool = pooled->named;
    pooled->place = (struct pool_place){.ordinal = -1};
    pooled->counted = false;
    pools_note_use();
    if (pools_count() && !capture_records(pooled->stream, pooled->zero)) {
        CUresult result = begin_counted(pooled);
        if (result != CUDA_SUCCESS || pooled->counted)
            return result;
    }
    pooled->former_kind = rm_memory_set_kind(ACCOUNT_BUFFER);
    return CUDA_SUCCESS;
}

/* Room is made where the pool is counted, and none for memory of the host. */
static bool begin(struct pooled *pooled)
{
    while (pooled->place.kind != POOL_HOST &&
           pools_allow_attempt(&pooled->attempts, pooled->result, pooled->place.ordinal)) {
        pooled->result = attempt(pooled);
        if (pooled->result == CUDA_SUCCESS)
            return true;
    }
    return false;
}

static void end_counted(
    struct pooled *pooled, const CUdeviceptr *dptr, __typeof__(cuda.cuMemFreeAsync) undo)
{
    int device = pooled->request.device;
    bool overgrown = false;
    if (pooled->result == CUDA_SUCCESS) {
        pools_note_allocated(pooled->pool, *dptr, pooled->bytes);
        overgrown = pools_charge(pooled->pool, pooled->place.kind, device, &pooled->growth);
    }
    memory_end(&pooled->request, false, MEMORY_POOL, 0);
    /* What lies unused in a pool may be in pieces too small for the request: the pool has then
     * grown by more than was reserved. */
    if (!overgrown || device < 0 || account_check((unsigned)device, 0) == 0)
        return;
    if (undo(*dptr, pooled->stream) == CUDA_SUCCESS)
        pools_note_freed(*dptr);
    struct capture_relaxed former = capture_relax();
    (void)cuda.cuMemPoolTrimTo(pooled->pool, 0);
    capture_restore(&former);
    pools_refresh(pooled->place.ordinal);
    pooled->result = CUDA_ERROR_OUT_OF_MEMORY;
}

/* The driver has answered. `undo` frees what it allocated. */
static void end(
    struct pooled *pooled, const CUdeviceptr *dptr, __typeof__(cuda.cuMemFreeAsync) undo)
{
    if (pooled->counted)
        end_counted(pooled, dptr, undo);
    else
        rm_memory_set_kind(pooled->former_kind);
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolCreate(pool, poolProps);
    if (result == CUDA_SUCCESS)
        pools_note(*pool, poolProps->allocType, &poolProps->location);
    return result;
}

CUresult hook_cuMemGetDefaultMemPool(
    CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    hook_enter();
    CUresult result = cuda.cuMemGetDefaultMemPool(pool_out, location, type);
    if (result == CUDA_SUCCESS)
        pools_note_met(*pool_out, type, location);
    return result;
}

CUresult hook_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    hook_enter();
    CUresult result = cuda.cuMemGetMemPool(pool, location, type);
    if (result == CUDA_SUCCESS)
        pools_note_met(*pool, type, location);
    return result;
}

CUresult hook_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    hook_enter();
    CUresult result = cuda.cuMemSetMemPool(location, type, pool);
    if (result == CUDA_SUCCESS)
        pools_note_met(pool, type, location);
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
    struct pool_place place;
    if (!pools_count())
        return result;
    if (pools_place(pool, &place) != CUDA_SUCCESS)
        pools_refresh_current();
    else if (place.kind != POOL_HOST)
        pools_refresh(place.ordinal);
    return result;
}

CUresult hook_cuDeviceGraphMemTrim(CUdevice device)
{
    hook_enter();
    CUresult result = cuda.cuDeviceGraphMemTrim(device);
    pools_refresh(device);
    return result;
}

#define TWINS "hook/cuda_pool.def"
#include "hook/twins.h"
