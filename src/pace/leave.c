/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, contexts and threads that end, and captures that begin: what becomes of their meters. */
#include "pace/completions.h"
#include "pace/context.h"

#include "base/clock.h"
#include "pace/capture.h"
#include "pace/share.h"
#include "driver/cuda.h"

#include <stddef.h>

#define RECORDING_NS 20000
#define RECORDING_MOST_NS 1000000000ull

/* What it has timing events for is seen to its end; no timing event will tell of what is open. */
static void meter_leaves(struct meter_record *record) REQUIRES(events_lock)
{
    share_charge_later((unsigned)record->device, -(int64_t)meter_give_up(&record->meter));
    events_meter_unlink(record);
}

/* A thread that waits at the gate may be recording on a stream that another one is about to end. */
static bool is_recorded_on(CUcontext handle, CUstream stream) REQUIRES(events_lock)
{
    for (struct pace_context *context = events_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (events_others_record(record) &&
                ((handle && context->handle == handle) || events_is_on(record, stream)))
                return true;
        }
    }
    return false;
}

/* At most RECORDING_MOST_NS, as the driver may keep a thread in that, and not at all in a signal's
 * handler that interrupted what is done under the lock. */
static void wait_for_recording(CUcontext handle, CUstream stream) REQUIRES(events_lock)
{
    uint64_t until = clock_now_ns() + RECORDING_MOST_NS;
    while (is_recorded_on(handle, stream) && lock_rest(&events_lock, RECORDING_NS, until))
        continue;
}

void events_context_waits(CUcontext handle)
{
    lock_take(&events_lock);
    for (struct pace_context *context = events_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next)
            record->meter.open.other |= context->handle == handle;
    }
    lock_release(&events_lock);
}

void events_capture_begins(CUstream stream)
{
    lock_take(&events_lock);
    wait_for_recording(NULL, stream);
    for (struct pace_context *context = events_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (record->orphan ||
                (!events_is_on(record, stream) && record->stream != CU_STREAM_LEGACY))
                continue;
            events_meter_renew(record);
            record->opener = NULL;
        }
    }
    lock_release(&events_lock);
}

void events_stream_leaves(CUstream stream)
{
    lock_take(&events_lock);
    wait_for_recording(NULL, stream);
    for (struct pace_context *context = events_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (events_is_on(record, stream) && !record->orphan)
                meter_leaves(record);
        }
    }
    lock_release(&events_lock);
}

void events_thread_leaves(void)
{
    lock_take(&events_lock);
    for (struct pace_context *context = events_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (record->thread == events_thread() && !record->orphan)
                meter_leaves(record);
        }
    }
    lock_release(&events_lock);
}

/* A meter on which somebody records still (wait_for_recording) goes when he is done, and its
 * context stays for it, nobody's. */
static void context_leaves(struct pace_context *context) REQUIRES(events_lock)
{
    for (struct meter_record **meter = &context->meters; *meter;) {
        while (meter_front(&(*meter)->meter))
            (void)cuda.cuEventDestroy_v2(meter_forget(&(*meter)->meter));
        if (!(*meter)->orphan)
            meter_leaves(*meter);
        if ((*meter)->recording)
            meter = &(*meter)->next;
        else
            events_meter_drop(meter);
    }
    events_context_drop(context);
}

void events_context_leaves(CUcontext handle)
{
    struct capture_relaxed former = capture_relax();
    lock_take(&events_lock);
    wait_for_recording(handle, NULL);
    for (struct pace_context *context = events_contexts(), *next; context; context = next) {
        next = context->next;
        if (context->handle != handle)
            continue;
        (void)completions_poll_context(context); /* what was reached is charged for */
        context_leaves(context);
    }
    lock_release(&events_lock);
    capture_restore(&former);
}
