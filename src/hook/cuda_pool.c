/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: what a pool can serve from what it holds goes in; its growth is judged
 * below the API, or by the pool's own figure under the API ledger and for managed memory. Pools of
 * host memory are not limited. */
#include "pace/capture.h"
#include "hook/hook.h"
#include "vmem/vmem.h"
#include "pace/pace.h"
#include "memory/pooled.h"
#include "memory/pools.h"
#include "vmem/park.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    hook_enter();
    CUresult result = cuda.cuMemPoolCreate(pool, poolProps);
    if (result == CUDA_SUCCESS)
        pools_note(*pool, poolProps->allocType, &poolProps->location);
    if (result == CUDA_SUCCESS &&
        pools_kind(poolProps->allocType, &poolProps->location) == POOL_HOST)
        park_forbid("the program has a pool of host memory");
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

/* With oversubscription; a stream that is none is an error, and a free that is only recorded is the
 * driver's to refuse. */
static bool free_served(
    CUdeviceptr dptr, CUstream stream, enum stream_zero zero, CUresult *ret_result)
{
    CUcontext context;
    struct vmem_allocation allocation;
    if (!vmem_find(dptr, &allocation) || capture_records(stream, zero))
        return false;
    *ret_result = cuda.cuStreamGetCtx(stream, &context); /* handle 0 has it in either form */
    if (!stream && zero == STREAM_ZERO_PER_THREAD)
        stream = CU_STREAM_PER_THREAD;
    return *ret_result != CUDA_SUCCESS ||
           vmem_free_in_order_slow(dptr, stream, context, ret_result);
}

#define TWINS "hook/cuda_pool.def"
#include "hook/twins.h"
