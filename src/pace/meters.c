/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and their streams' meters. */
#include "pace/meters.h"

#include "base/map.h"
#include "base/atomic.h"
#include "base/slab.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "pace/channels.h"

#include <stddef.h>
#include <string.h>

struct lock meters_lock = LOCK_INIT;

static struct {
    struct pace_context *contexts;
    struct slab context_slab, meter_slab;
    struct map meters; /* by stream_key */
    uint32_t last_id;
    bool used; /* some launch was under a limit; read without the lock */
} meters GUARDED_BY(meters_lock) = {.context_slab = {.object_bytes = sizeof(struct pace_context)},
    .meter_slab = {.object_bytes = sizeof(struct meter_record)}};

static uint64_t stream_key(const struct pace_context *context, CUstream stream, const void *thread)
{
    uint64_t key = (uintptr_t)context * 0x9e3779b97f4a7c15ull;
    key = (key ^ (uintptr_t)stream) * 0xff51afd7ed558ccdull;
    key = (key ^ (uintptr_t)thread) * 0xc4ceb9fe1a85ec53ull;
    return key | 1;
}

struct pace_context *meters_contexts(void)
{
    return meters.contexts;
}

struct meters_entered meters_enter(CUcontext handle)
{
    CUcontext current = NULL;
    struct meters_entered entered = {.pushed = false};
    if (cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != handle)
        entered.pushed = cuda.cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS;
    return entered;
}

void meters_leave(const struct meters_entered *entered)
{
    CUcontext context;
    if (entered->pushed)
        (void)cuda.cuCtxPopCurrent_v2(&context);
}

static struct pace_context *context_make(CUcontext handle) REQUIRES(meters_lock)
{
    int device;
    struct meters_entered entered = meters_enter(handle);
    CUresult result = device_identify_current(&device);
    meters_leave(&entered);
    if (result != CUDA_SUCCESS || device < 0)
        return NULL;
    struct pace_context *context = slab_take(&meters.context_slab);
    if (!context)
        return NULL;
    context->handle = handle;
    context->device = device;
    context->next = meters.contexts;
    meters.contexts = context;
    return context;
}

bool meters_is_named(CUstream stream)
{
    return (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
}

/* The stream's own context; for a default stream, the thread's. */
static struct pace_context *context_of(CUstream stream) REQUIRES(meters_lock)
{
    CUcontext handle = NULL;
    if (!meters_is_named(stream) || cuda.cuStreamGetCtx(stream, &handle) != CUDA_SUCCESS)
        (void)cuda.cuCtxGetCurrent(&handle);
    if (!handle)
        return NULL;
    for (struct pace_context *context = meters.contexts; context; context = context->next) {
        if (context->handle == handle)
            return context;
    }
    return context_make(handle);
}

/* Its address tells threads apart. */
static _Thread_local char thread_identity __attribute__((tls_model("initial-exec")));

const void *meters_thread(void)
{
    return &thread_identity;
}

void meters_renew(struct meter_record *record)
{
    meters.last_id += meters.last_id == UINT32_MAX ? 2 : 1;
    store_release(&record->id, meters.last_id);
}

/* A stream that does not tell counts as not apart. */
static bool is_apart(CUstream stream)
{
    unsigned flags = CU_STREAM_DEFAULT;
    return meters_is_named(stream) && cuda.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           flags & CU_STREAM_NON_BLOCKING;
}

struct meter_record *meters_of(CUstream stream)
{
    struct pace_context *context = context_of(stream);
    if (!context)
        return NULL;
    const void *thread = stream == CU_STREAM_PER_THREAD ? &thread_identity : NULL;
    uint64_t key = stream_key(context, stream, thread);
    struct meter_record *record = map_get(&meters.meters, key);
    if (record)
        return record;
    record = slab_take(&meters.meter_slab);
    if (!record)
        return NULL;
    record->context = context;
    meters_renew(record);
    record->stream = stream;
    record->thread = thread;
    record->device = context->device;
    record->apart = is_apart(stream);
    record->meter.closed = channels_closed_times((unsigned)record->device);
    if (map_put(&meters.meters, key, record) != 0) {
        slab_give(&meters.meter_slab, record);
        return NULL;
    }
    record->next = context->meters;
    context->meters = record;
    return record;
}

CUevent meters_spare_take(struct pace_context *context)
{
    return context->spare_count ? context->spares[--context->spare_count] : NULL;
}

void meters_spare_give(struct pace_context *context, CUevent event)
{
    if (context->spare_count < SPARE_EVENTS)
        context->spares[context->spare_count++] = event;
    else
        (void)cuda.cuEventDestroy_v2(event);
}

void meters_drop(struct meter_record **link)
{
    struct meter_record *record = *link;
    *link = record->next;
    store_release(&record->id, 0u);
    slab_give(&meters.meter_slab, record);
}

void meters_unlink(struct meter_record *record)
{
    (void)map_remove(&meters.meters, stream_key(record->context, record->stream, record->thread));
    record->orphan = true;
    store_release(&record->id, 0u);
}

void meters_context_drop(struct pace_context *context)
{
    struct pace_context **link = &meters.contexts;
    while (context->spare_count)
        (void)cuda.cuEventDestroy_v2(meters_spare_take(context));
    if (context->base)
        (void)cuda.cuEventDestroy_v2(context->base);
    context->base = NULL;
    context->handle = NULL;
    if (context->meters)
        return;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
    slab_give(&meters.context_slab, context);
}

bool meters_are_used(void)
{
    return load_relaxed(&meters.used);
}

void meters_use(bool used)
{
    store_relaxed(&meters.used, used);
}

void meters_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&meters_lock);
    meters.contexts = NULL;
    meters.used = false;
    slab_finish(&meters.context_slab);
    slab_finish(&meters.meter_slab);
    map_finish(&meters.meters);
}
