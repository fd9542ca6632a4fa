/* SPDX-License-Identifier: Apache-2.0 */
/* Recording timing events, and what is on its way. */
#include "pace/events.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "pace/capture.h"
#include "driver/cuda.h"
#include "pace/channels.h"
#include "pace/policy.h"
#include "pace/share.h"
#include "vgpu/region.h"

#include <stddef.h>
#include <string.h>

/* Nanoseconds. A stream that had work within this is one of those that launch. */
#define BESIDE_NS 200000000ull

static uint64_t
    blind_since_ns[VGPU_REGION_DEVICES]; /* since when events are refused; 0: they are not */

void events_note_other(struct meter_record *record)
{
    bool legacy = record->stream == CU_STREAM_LEGACY;
    record->meter.open.other = true;
    if (record->apart)
        return;
    for (struct meter_record *meter = record->context->meters; meter; meter = meter->next)
        meter->meter.open.other |= !meter->apart && (legacy || meter->stream == CU_STREAM_LEGACY);
}

void events_context_waits(CUcontext handle)
{
    LOCKED_TO_END(meters_lock);
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next)
            record->meter.open.other |= context->handle == handle;
    }
}

/* ---- recording ---- */

/* Not if the program's stream or context is not what it says, or a fault ended all work: the driver
 * answers the launch itself so. */
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
    (void)swap_seq_cst(&blind_since_ns[device], (uint64_t)0, now_ns);
    if (!load_relaxed(&logged))
        log_warning(
            "the driver refuses an event by which GPU time is measured; the compute limit is "
            "kept by the time between launches meanwhile");
    store_relaxed(&logged, true);
}

void events_note_seen(int device)
{
    if (load_relaxed(&blind_since_ns[device]))
        store_relaxed(&blind_since_ns[device], (uint64_t)0);
}

uint64_t events_blind_ns(unsigned device, uint64_t now_ns)
{
    uint64_t since = load_relaxed(&blind_since_ns[device]);
    if (!since || since >= now_ns || !swap_seq_cst(&blind_since_ns[device], since, now_ns))
        return 0;
    return now_ns - since;
}

static bool is_shared(const struct meter_record *record) REQUIRES(meters_lock)
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
    struct meters_entered entered = meters_enter(handle);
    struct capture_relaxed former = capture_relax();
    if (cuda.cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        event = NULL;
    capture_restore(&former);
    meters_leave(&entered);
    return event;
}

/* On which this thread is recording: it may be interrupted in that by a signal's handler that ends
 * a stream, or calls exit. */
static _Thread_local const struct meter_record *recording_on
    __attribute__((tls_model("initial-exec")));

/* Between begin and end of a recording neither the record nor its stream ends
 * (wait_for_recording). */
static bool begin_recording(struct meter_record *record, uint32_t id, CUevent *ret_event)
{
    LOCKED_TO_END(meters_lock);
    bool wanted = meters_is_same(record, id) && !meter_is_full(&record->meter);
    *ret_event = wanted ? meters_spare_take(record->context) : NULL;
    record->recording += wanted;
    recording_on = wanted ? record : NULL;
    return wanted;
}

static void end_recording(struct meter_record *record, CUevent event, bool recorded,
    uint64_t now_ns, struct meter_run run)
{
    LOCKED_TO_END(meters_lock);
    if (recorded && !meter_is_full(&record->meter)) {
        run.shared = is_shared(record);
        run.siblings = share_active((unsigned)record->device) > 1;
        struct slices_part part = policy_part((unsigned)record->device);
        run.part = (uint16_t)part.permille;
        run.likely = (uint16_t)part.likely;
        run.others_ns = part.others_us * 1000;
        meter_add_event(&record->meter, event, now_ns, &run);
    } else if (event) {
        meters_spare_give(record->context, event);
    }
    record->recording--;
    recording_on = NULL;
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

/* A thread that is cancelled in between would leave others waiting for its end. */
void events_record(struct meter_record *record, uint32_t id, struct meter_run run)
{
    CUevent event;
    lock_hold_cancel();
    if (begin_recording(record, id, &event))
        record_event(record, event, run);
    lock_let_cancel();
}

static bool is_open(const struct meter_record *meter) REQUIRES(meters_lock)
{
    return meter->meter.open.launches && meter->opener == meters_thread() && !meter->orphan &&
           !meter_is_full(&meter->meter);
}

/* A default stream can only be used while its context is the thread's current one. */
static struct meter_record *open_meter(const struct meter_record *but) REQUIRES(meters_lock)
{
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        bool own = context == but->context;
        for (struct meter_record *meter = context->meters; meter; meter = meter->next) {
            bool reachable =
                meters_is_named(meter->stream) || (own && meter->stream != CU_STREAM_LEGACY);
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
        struct meter_record *meter = NULL;
        struct meter_run run = {.continuous = false};
        uint32_t meter_id = 0;
        LOCKED(meters_lock) {
            meter = meters_is_same(record, id) ? open_meter(record) : NULL;
            meter_id = meter ? meter->id : 0;
            run.continuous = meter && meter->meter.count > 0;
        }
        if (!meter || meter == former)
            return;
        events_record(meter, meter_id, run);
        former = meter;
    }
}

/* ---- what is on its way ---- */

unsigned events_unknown(int device)
{
    unsigned unknown = 0;
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
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
    if (record->thread && record->thread != meters_thread())
        return true;
    struct meters_entered entered = meters_enter(record->context->handle);
    bool told = !capture_records(record->stream, STREAM_ZERO_LEGACY);
    if (told)
        *ret_works = events_stream_works(record->stream);
    meters_leave(&entered);
    return told;
}

bool events_work(int device, uint64_t now_ns, uint64_t *ret_running_ns)
{
    bool works = false;
    *ret_running_ns = 0;
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
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
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        if (context->device != device)
            continue;
        /* What was not polled since may be over. */
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

bool events_others_record(const struct meter_record *record)
{
    return record->recording > (record == recording_on ? 1u : 0u);
}

void events_reset(void)
{
    recording_on = NULL;
    memset(blind_since_ns, 0, sizeof(blind_since_ns));
}
