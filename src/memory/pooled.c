/* SPDX-License-Identifier: Apache-2.0 */
/* The attempts of an allocation from a pool. */
#include "memory/pooled.h"

#include "container/container.h"
#include "container/device.h"
#include "account/account.h"
#include "rm/rm_memory.h"

#include <stdint.h>

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

/* Whether pools of the kind are counted here. */
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
bool pooled_begin(struct pooled *pooled)
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

void pooled_end(
    struct pooled *pooled, const CUdeviceptr *dptr, __typeof__(cuda.cuMemFreeAsync) undo)
{
    if (pooled->counted)
        end_counted(pooled, dptr, undo);
    else
        rm_memory_set_kind(pooled->former_kind);
}
