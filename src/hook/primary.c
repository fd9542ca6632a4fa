/* SPDX-License-Identifier: Apache-2.0 */
/* What the process holds of each device's primary context. */
#include "hook/primary.h"

#include "base/atomic.h"
#include "memory/context_make.h"
#include "hook/hook.h"
#include "pace/pace.h"

#include <stddef.h>

#define ORDINALS_MAX 64 /* devices; the region has room for 64 */

static struct {
    uint64_t handle; /* the last one, which its memory goes with */
    int64_t holds;   /* how often it was retained and not released */
} primary[ORDINALS_MAX];

static bool is_known(CUdevice dev)
{
    return dev >= 0 && dev < ORDINALS_MAX;
}

static CUresult ask_active(CUdevice dev, int *ret_active)
{
    unsigned int flags;
    return cuda.cuDevicePrimaryCtxGetState(dev, &flags, ret_active);
}

static bool is_active(CUdevice dev)
{
    int active = 0;
    return ask_active(dev, &active) == CUDA_SUCCESS && active;
}

/* Asked again where it is not told: other holders may be left, and what they hold still counts. */
static bool is_gone(CUdevice dev)
{
    int active = 1;
    CUresult result = ask_active(dev, &active);
    if (result != CUDA_SUCCESS)
        result = ask_active(dev, &active);
    return result == CUDA_SUCCESS && !active;
}

CUcontext primary_handle(CUdevice dev)
{
    return is_known(dev) ? (CUcontext)(uintptr_t)load_relaxed(&primary[dev].handle) : NULL;
}

CUdevice primary_device(CUcontext context)
{
    for (CUdevice dev = 0; context && dev < ORDINALS_MAX; dev++) {
        if (load_relaxed(&primary[dev].handle) == (uintptr_t)context)
            return dev;
    }
    return PRIMARY_NONE;
}

void primary_held(CUdevice dev)
{
    if (is_known(dev))
        add_relaxed(&primary[dev].holds, (int64_t)1);
}

/* Also one that was made behind our back: its memory goes with this handle. */
static CUresult retained(CUdevice dev, const CUcontext *context, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        primary_held(dev);
        if (is_known(dev))
            store_relaxed(&primary[dev].handle, (uintptr_t)*context);
    }
    return result;
}

CUresult primary_retain(CUcontext *ret_context, CUdevice dev)
{
    if (memory_ledger() != MEMORY_LEDGER_UNDECIDED && is_active(dev))
        return retained(dev, ret_context, cuda.cuDevicePrimaryCtxRetain(ret_context, dev));
    struct context_make context = context_make_on(dev, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuDevicePrimaryCtxRetain(ret_context, dev);
        context_make_end(&context, MEMORY_PRIMARY, (uint64_t)dev);
    }
    CUresult result = context.result;
    /* Another thread may have made it meanwhile, with room for one of the two only. */
    if (result == CUDA_ERROR_OUT_OF_MEMORY && is_active(dev))
        result = cuda.cuDevicePrimaryCtxRetain(ret_context, dev);
    return retained(dev, ret_context, result);
}

static void leaves(CUdevice dev)
{
    if (primary_handle(dev))
        pace_context_leaves(primary_handle(dev));
}

void primary_let_go(CUdevice dev)
{
    if (!is_known(dev))
        return;
    add_relaxed(&primary[dev].holds, -(int64_t)1);
    if (load_relaxed(&primary[dev].holds) <= 0) {
        store_relaxed(&primary[dev].holds, (int64_t)0);
        leaves(dev);
    }
}

void primary_may_end(struct vmem_end *end, CUdevice dev)
{
    vmem_context_ends(end, (uintptr_t)primary_handle(dev));
}

/* A reset leaves the handle valid and the context inactive. */
void primary_settle(struct vmem_end *end, CUdevice dev, bool reset)
{
    bool gone = dev != PRIMARY_NONE && is_gone(dev);
    if (gone) {
        struct memory_record record = memory_take(MEMORY_PRIMARY, (uint64_t)dev);
        memory_taken(&record, true, MEMORY_PRIMARY, (uint64_t)dev);
    }
    vmem_context_ended(end, gone || reset);
    if (gone)
        memory_context_gone((uintptr_t)primary_handle(dev), end->recorded);
}

CUresult primary_release(CUdevice dev, CUresult (*driver)(CUdevice dev))
{
    struct vmem_end end;
    primary_let_go(dev);
    primary_may_end(&end, dev);
    pace_context_ends();
    CUresult result = driver(dev);
    pace_context_ended();
    primary_settle(&end, dev, false);
    return result;
}

/* Asked twice: the program does not know of this hold, and would not release it. */
void primary_drop(CUdevice dev)
{
    if (primary_release(dev, cuda.cuDevicePrimaryCtxRelease_v2) == CUDA_SUCCESS)
        return;
    struct vmem_end end;
    primary_may_end(&end, dev);
    (void)cuda.cuDevicePrimaryCtxRelease_v2(dev);
    primary_settle(&end, dev, false);
}

CUresult primary_reset(CUdevice dev, bool has_green, CUresult (*driver)(CUdevice dev))
{
    /* Refused while there are green contexts, whose work goes on (H200, driver 580.159.04). */
    if (!has_green)
        leaves(dev);
    struct vmem_end end;
    primary_may_end(&end, dev);
    pace_context_ends();
    CUresult result = driver(dev);
    pace_context_ended();
    if (result == CUDA_SUCCESS && is_known(dev))
        store_relaxed(&primary[dev].holds, (int64_t)0);
    primary_settle(&end, dev, result == CUDA_SUCCESS);
    return result;
}
