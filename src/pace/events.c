/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, their streams' meters and the events on them. */
#include "pace/events.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/slab.h"
#include "pace/capture.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "pace/channels.h"
#include "pace/completions.h"
#include "pace/context.h"
#include "pace/policy.h"
#include "pace/share.h"
#include "vgpu/region.h"

#include <stddef.h>
#include <string.h>

/* A stream that had work within this is one of those that launch. */
#define BESIDE_NS 200000000ull

struct lock events_lock = LOCK_INIT;

static struct {
    uint64_t blind_since_ns[VGPU_REGION_DEVICES]; /* 0: timing events are to be had */
    struct pace_context *contexts;
    struct slab context_slab, meter_slab;
    struct map meters; /* by stream_key */
    uint32_t last_id;
} events = {.context_slab = {.object_bytes = sizeof(struct pace_context)},
    .meter_slab = {.object_bytes = sizeof(struct meter_record)}};

static uint64_t stream_key(const struct pace_context *context, CUstream stream, const void *thread)
{
    uint64_t key = (uintptr_t)context * 0x9e3779b97f4a7c15ull;
    key = (key ^ (uintptr_t)stream) * 0xff51afd7ed558ccdull;
    key = (key ^ (uintptr_t)thread) * 0xc4ceb9fe1a85ec53ull;
    return key | 1;
}

/* ---- contexts and meters ---- */

struct pace_context *events_contexts(void)
{
    return events.contexts;
}

/* A context that is the thread's current one for the time being. */
struct pace_entered {
    bool pushed;
};

static struct pace_entered context_enter(CUcontext handle)
{
    CUcontext current = NULL;
    struct pace_entered entered = {.pushed = false};
    if (cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != handle)
        entered.pushed = cuda.cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS;
    return entered;
}

static void context_leave(const struct pace_entered *entered)
{
    CUcontext context;
    if (entered->pushed)
        (void)cuda.cuCtxPopCurrent_v2(&context);
}

static struct pace_context *context_make(CUcontext handle) REQUIRES(events_lock)
{
    int device;
    struct pace_entered entered = context_enter(handle);
    CUresult result = device_identify_current(&device);
    context_leave(&entered);
    if (result != CUDA_SUCCESS || device < 0)
        return NULL;
    struct pace_context *context = slab_take(&events.context_slab);
    if (!context)
        return NULL;
    context->handle = handle;
    context->device = device;
    context->next = events.contexts;
    events.contexts = context;
    return context;
}

/* It is none of the default streams. */
static bool is_named(CUstream stream)
{
    return (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
}

/* The stream's own context; of a default stream, the thread's. */
static struct pace_context *context_of(CUstream stream) REQUIRES(events_lock)
{
    CUcontext handle = NULL;
    if (!is_named(stream) || cuda.cuStreamGetCtx(stream, &handle) != CUDA_SUCCESS)
        (void)cuda.cuCtxGetCurrent(&handle);
    if (!handle)
        return NULL;
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        if (context->handle == handle)
            return context;
    }
    return context_make(handle);
}

/* Tells a thread's own default stream from another's. */
static _Thread_local char thread_identity __attribute__((tls_model("initial-exec")));

const void *events_thread(void)
{
    return &thread_identity;
}

void events_meter_renew(struct meter_record *record)
{
    events.last_id += events.last_id == UINT32_MAX ? 2 : 1;
    store_release(&record->id, events.last_id);
}

/* One that does not tell counts as if others may wait for it. */
static bool is_apart(CUstream stream)
{
    unsigned flags = CU_STREAM_DEFAULT;
    return is_named(stream) && cuda.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           flags & CU_STREAM_NON_BLOCKING;
}

struct meter_record *events_meter(CUstream stream)
{
    struct pace_context *context = context_of(stream);
    if (!context)
        return NULL;
    const void *thread = stream == CU_STREAM_PER_THREAD ? &thread_identity : NULL;
    uint64_t key = stream_key(context, stream, thread);
    struct meter_record *record = map_get(&events.meters, key);
    if (record)
        return record;
    record = slab_take(&events.meter_slab);
    if (!record)
        return NULL;
    record->context = context;
    events_meter_renew(record);
    record->stream = stream;
    record->thread = thread;
    record->device = context->device;
    record->apart = is_apart(stream);
    record->meter.closed = channels_closed_times((unsigned)record->device);
    if (map_put(&events.meters, key, record) != 0) {
        slab_give(&events.meter_slab, record);
        return NULL;
    }
    record->next = context->meters;
    context->meters = record;
    return record;
}

void events_note_other(struct meter_record *record)
{
    bool legacy = record->stream == CU_STREAM_LEGACY;
    record->meter.open.other = true;
    if (record->apart)
        return;
    for (struct meter_record *meter = record->context->meters; meter; meter = meter->next)
        meter->meter.open.other |= !meter->apart && (legacy || meter->stream == CU_STREAM_LEGACY);
}

/* ---- events ---- */

/* Not where the program's stream or context is not what it says, or a fault ended all work: the
 * launch itself will be answered so. */
static bool is_blinding(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_UNKNOWN ||
           result == CUDA_ERROR_INVALID_VALUE;
}

void events_note_blind(int device, CUresult result, uint64_t now_ns)
{
    static bool logged;
    if (!is_blinding(result))
        return;
    (void)swap_seq_cst(&events.blind_since_ns[device], (uint64_t)0, now_ns);
    if (!load_relaxed(&logged))
        log_warning(
            "the driver refuses an event by which GPU time is measured; the compute limit is "
            "kept by the time between launches meanwhile");
    store_relaxed(&logged, true);
}

void events_note_seen(int device)
{
    if (load_relaxed(&events.blind_since_ns[device]))
        store_relaxed(&events.blind_since_ns[device], (uint64_t)0);
}

uint64_t events_blind_ns(unsigned device, uint64_t now_ns)
{
    uint64_t since = load_relaxed(&events.blind_since_ns[device]);
    if (!since || since >= now_ns || !swap_seq_cst(&events.blind_since_ns[device], since, now_ns))
        return 0;
    return now_ns - since;
}

static CUevent spare_take(struct pace_context *context) REQUIRES(events_lock)
{
    return context->spare_count ? context->spares[--context->spare_count] : NULL;
}

void events_spare_give(struct pace_context *context, CUevent event)
{
    if (context->spare_count < SPARE_EVENTS)
        context->spares[context->spare_count++] = event;
    else
        (void)cuda.cuEventDestroy_v2(event);
}

static bool is_shared(const struct meter_record *record) REQUIRES(events_lock)
{
    for (const struct meter_record *other = record->context->meters; other; other = other->next) {
        if (other != record && other->meter.count)
            return true;
    }
    return false;
}

bool events_beside(const struct meter_record *record, uint64_t now_ns)
{
    for (const struct meter_record *other = record->context->meters; other; other = other->next) {
        if (other != record && meter_recorded_ns(&other->meter) + BESIDE_NS >= now_ns)
            return true;
    }
    return false;
}

static CUevent event_make(CUcontext handle)
{
    CUevent event = NULL;
    struct pace_entered entered = context_enter(handle);
    struct capture_relaxed former = capture_relax();
    if (cuda.cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        event = NULL;
    capture_restore(&former);
    context_leave(&entered);
    return event;
}

/* On which this thread is recording. A signal's handler that ends a stream, or calls exit, may have
 * interrupted it in that. */
static _Thread_local const struct meter_record *recording_on
    __attribute__((tls_model("initial-exec")));

/* Between the two the record cannot go, nor can its stream (wait_for_recording). */
static bool begin_recording(struct meter_record *record, uint32_t id, CUevent *ret_event)
{
    lock_take(&events_lock);
    bool wanted = events_is_same(record, id) && !meter_is_full(&record->meter);
    *ret_event = wanted ? spare_take(record->context) : NULL;
    record->recording += wanted;
    recording_on = wanted ? record : NULL;
    lock_release(&events_lock);
    return wanted;
}

static void end_recording(struct meter_record *record, CUevent event, bool recorded,
    uint64_t now_ns, struct meter_run run)
{
    lock_take(&events_lock);
    if (recorded && !meter_is_full(&record->meter)) {
        run.shared = is_shared(record);
        run.siblings = share_active((unsigned)record->device) > 1;
        struct slices_part part = policy_part((unsigned)record->device);
        run.part = (uint16_t)part.permille;
        run.likely = (uint16_t)part.likely;
        run.others_ns = part.others_us * 1000;
        meter_add_event(&record->meter, event, now_ns, &run);
    } else if (event) {
        events_spare_give(record->context, event);
    }
    record->recording--;
    recording_on = NULL;
    lock_release(&events_lock);
}

static void record_event(struct meter_record *record, CUevent event, struct meter_run run)
{
    if (!event)
        event = event_make(record->context->handle);
    run.asked_ns = clock_now_ns();
    CUresult result = event ? cuda.cuEventRecord(event, record->stream) : CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t now = clock_now_ns();
    if (result != CUDA_SUCCESS)
        events_note_blind(record->device, result, now);
    end_recording(record, event, result == CUDA_SUCCESS, now, run);
}

/* A thread that was cancelled in the midst of it would leave others waiting for its end. */
void events_record(struct meter_record *record, uint32_t id, struct meter_run run)
{
    CUevent event;
    lock_hold_cancel();
    if (begin_recording(record, id, &event))
        record_event(record, event, run);
    lock_let_cancel();
}

static bool is_open(const struct meter_record *meter) REQUIRES(events_lock)
{
    return meter->meter.open.launches && meter->opener == &thread_identity && !meter->orphan &&
           !meter_is_full(&meter->meter);
}

/* A default stream is only to be had while its context is the thread's current one. */
static struct meter_record *open_meter(const struct meter_record *but) REQUIRES(events_lock)
{
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        bool own = context == but->context;
        for (struct meter_record *meter = context->meters; meter; meter = meter->next) {
            bool reachable = is_named(meter->stream) || (own && meter->stream != CU_STREAM_LEGACY);
            if (meter != but && meter->device == but->device && reachable && is_open(meter) &&
                !capture_records(meter->stream, STREAM_ZERO_LEGACY))
                return meter;
        }
    }
    return NULL;
}

void events_close_others(const struct meter_record *record, uint32_t id)
{
    const struct meter_record *former = NULL;
    for (;;) {
        lock_take(&events_lock);
        struct meter_record *meter = events_is_same(record, id) ? open_meter(record) : NULL;
        uint32_t meter_id = meter ? meter->id : 0;
        struct meter_run run = {.continuous = meter && meter->meter.count > 0};
        lock_release(&events_lock);
        if (!meter || meter == former)
            return;
        events_record(meter, meter_id, run);
        former = meter;
    }
}

static struct meter_record *open_on(CUstream stream) REQUIRES(events_lock)
{
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        for (struct meter_record *meter = context->meters; meter; meter = meter->next) {
            if (events_is_on(meter, stream) && !meter->orphan && meter->meter.open.launches)
                return meter;
        }
    }
    return NULL;
}

void events_close(CUstream stream)
{
    lock_take(&events_lock);
    struct meter_record *meter = open_on(stream);
    if (meter)
        (void)completions_poll(meter->device);
    uint32_t id = meter ? meter->id : 0;
    struct meter_run run = {.continuous = meter && meter->meter.count > 0};
    lock_release(&events_lock);
    if (meter && !capture_records(stream, STREAM_ZERO_LEGACY))
        events_record(meter, id, run);
}

/* ---- what is on its way ---- */

unsigned events_unknown(int device)
{
    unsigned unknown = 0;
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        if (context->device != device)
            continue;
        for (const struct meter_record *record = context->meters; record; record = record->next)
            unknown += record->meter.unknown;
    }
    return unknown;
}

bool events_stream_works(CUstream stream)
{
    struct capture_relaxed former = capture_relax();
    bool works = cuda.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    capture_restore(&former);
    return works;
}

bool events_meter_works(const struct meter_record *record, bool *ret_works)
{
    *ret_works = false;
    if (record->thread && record->thread != &thread_identity)
        return true;
    struct pace_entered entered = context_enter(record->context->handle);
    bool told = !capture_records(record->stream, STREAM_ZERO_LEGACY);
    if (told)
        *ret_works = events_stream_works(record->stream);
    context_leave(&entered);
    return told;
}

bool events_work(int device, uint64_t now_ns, uint64_t *ret_running_ns)
{
    bool works = false;
    *ret_running_ns = 0;
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        if (context->device != device)
            continue;
        for (const struct meter_record *record = context->meters; record; record = record->next) {
            bool here = meter_front_works(&record->meter);
            works |= here;
            *ret_running_ns += here ? meter_front_running_ns(&record->meter, now_ns) : 0;
        }
    }
    return works;
}

struct events_survey events_survey(int device, uint64_t now_ns, uint64_t long_ns)
{
    struct events_survey survey = {.long_in_ns = UINT64_MAX};
    for (struct pace_context *context = events.contexts; context; context = context->next) {
        if (context->device != device)
            continue;
        /* What nobody asked for since may be over. */
        uint64_t seen_ns = context->polled_ns;
        for (const struct meter_record *record = context->meters; record; record = record->next) {
            survey.outstanding += meter_is_on_way(&record->meter, now_ns);
            survey.runs_long |= meter_runs_for(&record->meter, seen_ns, long_ns);
            survey.left_ns += meter_left_ns(&record->meter, now_ns);
            uint64_t long_in = meter_long_in_ns(&record->meter, seen_ns, long_ns);
            survey.long_in_ns = long_in < survey.long_in_ns ? long_in : survey.long_in_ns;
        }
    }
    return survey;
}

/* ---- ends: whose is pace_leave.c's ---- */

void events_meter_drop(struct meter_record **link)
{
    struct meter_record *record = *link;
    *link = record->next;
    store_release(&record->id, 0u);
    slab_give(&events.meter_slab, record);
}

void events_meter_unlink(struct meter_record *record)
{
    (void)map_remove(&events.meters, stream_key(record->context, record->stream, record->thread));
    record->orphan = true;
    store_release(&record->id, 0u);
}

void events_context_drop(struct pace_context *context)
{
    struct pace_context **link = &events.contexts;
    while (context->spare_count)
        (void)cuda.cuEventDestroy_v2(spare_take(context));
    if (context->base)
        (void)cuda.cuEventDestroy_v2(context->base);
    context->base = NULL;
    context->handle = NULL;
    if (context->meters)
        return;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
    slab_give(&events.context_slab, context);
}

bool events_others_record(const struct meter_record *record)
{
    return record->recording > (record == recording_on ? 1u : 0u);
}

void events_reset(void)
{
    lock_reset(&events_lock);
    recording_on = NULL;
    events.contexts = NULL;
    memset(events.blind_since_ns, 0, sizeof(events.blind_since_ns));
    slab_finish(&events.context_slab);
    slab_finish(&events.meter_slab);
    map_finish(&events.meters);
}
