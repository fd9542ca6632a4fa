/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: made, destroyed, and the limits that size their heaps. With the API ledger a context
 * counts as CONTEXT_BYTES, and what its limits take (hook/context_memory.h). */
#include "base/atomic.h"
#include "hook/hook.h"
#include "hook/pace.h"
#include "hook/pools.h"
#include "hook/context_memory.h"
#include "limit/rm_memory.h"

#include <stddef.h>

/* 518 to 522 MiB were seen on an H200 (driver 580.159.04); smaller GPUs take less. */
#define CONTEXT_BYTES (520ull << 20)

struct context_request {
    struct memory_request memory;
    bool counted; /* by the API ledger, from the start */
    unsigned refusals;
};

static CUresult begin_context(struct context_request *request, CUdevice dev)
{
    int device;
    CUresult result = hook_identify(dev, &device);
    /* With a device that is there but not told, memory_begin refuses where any limit is set. */
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_INITIALIZED)
        return result;
    memory_choose_ledger(false);
    request->counted = memory_ledger() == MEMORY_LEDGER_API;
    uint64_t bytes = request->counted ? CONTEXT_BYTES : 0;
    request->refusals = rm_memory_thread_refusals();
    return memory_begin(&request->memory, device, bytes, ACCOUNT_CONTEXT) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unmake(enum memory_handle type, uint64_t handle)
{
    if (type == MEMORY_CONTEXT)
        return cuda.cuCtxDestroy_v2((CUcontext)(uintptr_t)handle);
    CUresult result = cuda.cuDevicePrimaryCtxRelease_v2((CUdevice)handle);
    return result == CUDA_ERROR_NOT_SUPPORTED ? cuda.cuDevicePrimaryCtxRelease((CUdevice)handle)
                                              : result;
}

/* The first context shows which ledger counts; if it is the API's, this context was not reserved.
 * Returns out of memory where it does not fit, and is gone again. */
static CUresult choose_ledger(
    const struct context_request *request, enum memory_handle type, uint64_t handle)
{
    int device = request->memory.device;
    struct memory_request late;
    memory_choose_ledger(true);
    if (request->counted || memory_ledger() != MEMORY_LEDGER_API)
        return CUDA_SUCCESS;
    if (memory_begin(&late, device, CONTEXT_BYTES, ACCOUNT_CONTEXT) == 0)
        memory_end(&late, true, type, handle);
    else if (unmake(type, handle) == CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    else
        memory_set(type, handle, device, CONTEXT_BYTES, ACCOUNT_CONTEXT);
    return CUDA_SUCCESS;
}

/* Returns what the program is told: a context that failed because memory was refused failed for
 * want of memory. The driver says "unknown" where it is the 11th of a context's allocations that
 * is refused (H200, driver 580.159.04). */
static CUresult end_context(
    struct context_request *request, CUresult result, enum memory_handle type, uint64_t handle)
{
    bool made = result == CUDA_SUCCESS;
    memory_end(&request->memory, made, type, made ? handle : 0);
    if (made)
        return choose_ledger(request, type, handle);
    bool refused = rm_memory_thread_refusals() != request->refusals;
    return result == CUDA_ERROR_UNKNOWN && refused ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Pools of the device give way to a context that needs the room. */
static bool context_again(CUresult result, CUdevice dev, unsigned *attempts)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && (*attempts)++ == 0 && pools_make_room(dev);
}

/* `call` makes the context, for which `handle` stands then. */
#define MAKE_CONTEXT(dev, type, handle, call)                                                      \
    ({                                                                                             \
        unsigned attempts = 0;                                                                     \
        CUresult answer;                                                                           \
        do {                                                                                       \
            struct context_request request;                                                        \
            answer = begin_context(&request, dev);                                                 \
            if (answer == CUDA_SUCCESS) {                                                          \
                answer = call;                                                                     \
                answer = end_context(&request, answer, type, handle);                              \
            }                                                                                      \
        } while (context_again(answer, dev, &attempts));                                           \
        answer;                                                                                    \
    })

static uint64_t handle_of(const CUcontext *pctx)
{
    return pctx ? (uintptr_t)*pctx : 0;
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    return MAKE_CONTEXT(dev, MEMORY_CONTEXT, handle_of(pctx), cuda.cuCtxCreate(pctx, flags, dev));
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    return MAKE_CONTEXT(
        dev, MEMORY_CONTEXT, handle_of(pctx), cuda.cuCtxCreate_v2(pctx, flags, dev));
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
    unsigned int flags, CUdevice dev)
{
    hook_enter();
    return MAKE_CONTEXT(dev, MEMORY_CONTEXT, handle_of(pctx),
        cuda.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev));
}

CUresult hook_cuCtxCreate_v4(
    CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    hook_enter();
    return MAKE_CONTEXT(dev, MEMORY_CONTEXT, handle_of(pctx),
        cuda.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev));
}

static void destroyed(CUcontext ctx, const struct memory_record *record, CUresult result)
{
    memory_taken(record, result == CUDA_SUCCESS, MEMORY_CONTEXT, (uintptr_t)ctx);
    if (result == CUDA_SUCCESS)
        memory_context_gone((uintptr_t)ctx);
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)ctx);
    pace_context_leaves(ctx);
    CUresult result = cuda.cuCtxDestroy_v2(ctx);
    destroyed(ctx, &record, result);
    return result;
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)ctx);
    pace_context_leaves(ctx);
    CUresult result = cuda.cuCtxDestroy(ctx);
    destroyed(ctx, &record, result);
    return result;
}

#define ORDINALS_MAX 64
static uint64_t
    primary_contexts[ORDINALS_MAX]; /* the last handle of each, which its memory goes with */

static bool primary_is_active(CUdevice dev)
{
    unsigned int flags;
    int active = 0;
    return cuda.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

/* How often each was retained and not released. */
static int64_t primary_holds[ORDINALS_MAX];

static CUresult retained(CUdevice dev, CUresult result)
{
    if (result == CUDA_SUCCESS && dev >= 0 && dev < ORDINALS_MAX)
        add_relaxed(&primary_holds[dev], (int64_t)1);
    return result;
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    hook_enter();
    if (memory_ledger() != MEMORY_LEDGER_UNDECIDED && primary_is_active(dev))
        return retained(dev, cuda.cuDevicePrimaryCtxRetain(pctx, dev));
    CUresult result =
        MAKE_CONTEXT(dev, MEMORY_PRIMARY, (uint64_t)dev, cuda.cuDevicePrimaryCtxRetain(pctx, dev));
    /* Another thread may have made it meanwhile, with room for one of the two only. */
    if (result == CUDA_ERROR_OUT_OF_MEMORY && primary_is_active(dev))
        result = cuda.cuDevicePrimaryCtxRetain(pctx, dev);
    if (result == CUDA_SUCCESS && dev >= 0 && dev < ORDINALS_MAX)
        store_relaxed(&primary_contexts[dev], (uintptr_t)*pctx);
    return retained(dev, result);
}

/* Events of ours on its streams die with it. */
static void primary_leaves(CUdevice dev)
{
    if (dev >= 0 && dev < ORDINALS_MAX && load_relaxed(&primary_contexts[dev]))
        pace_context_leaves((CUcontext)(uintptr_t)load_relaxed(&primary_contexts[dev]));
}

static void primary_released(CUdevice dev)
{
    if (dev < 0 || dev >= ORDINALS_MAX)
        return;
    add_relaxed(&primary_holds[dev], -(int64_t)1);
    if (load_relaxed(&primary_holds[dev]) <= 0) {
        store_relaxed(&primary_holds[dev], (int64_t)0);
        primary_leaves(dev);
    }
}

static void primary_reset(CUdevice dev)
{
    primary_leaves(dev);
    if (dev >= 0 && dev < ORDINALS_MAX)
        store_relaxed(&primary_holds[dev], (int64_t)0);
}

/* After a release or reset the primary context may be gone, and all that it held with it. A reset
 * leaves the handle valid and the context inactive. */
static void settle_primary(CUdevice dev)
{
    if (primary_is_active(dev))
        return;
    struct memory_record record = memory_take(MEMORY_PRIMARY, (uint64_t)dev);
    memory_taken(&record, true, MEMORY_PRIMARY, (uint64_t)dev);
    if (dev >= 0 && dev < ORDINALS_MAX)
        memory_context_gone(load_relaxed(&primary_contexts[dev]));
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    hook_enter();
    primary_released(dev);
    CUresult result = cuda.cuDevicePrimaryCtxRelease(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    hook_enter();
    primary_released(dev);
    CUresult result = cuda.cuDevicePrimaryCtxRelease_v2(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev)
{
    hook_enter();
    primary_reset(dev);
    CUresult result = cuda.cuDevicePrimaryCtxReset(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    hook_enter();
    primary_reset(dev);
    CUresult result = cuda.cuDevicePrimaryCtxReset_v2(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
    hook_enter();
    struct context_growth growth;
    if (!context_memory_fits_limit(limit, value, &growth))
        return growth.refusal;
    CUresult result = cuda.cuCtxSetLimit(limit, value);
    context_memory_settle_limit(&growth, result == CUDA_SUCCESS);
    return result;
}
