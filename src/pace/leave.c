/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the meters of streams, contexts and threads that end, and of streams that begin
 * to capture. */
#include "pace/leave.h"

#include "base/clock.h"
#include "pace/completions.h"
#include "pace/events.h"
#include "pace/meters.h"
#include "pace/capture.h"
#include "pace/share.h"
#include "driver/cuda.h"

#include <stddef.h>

/* Nanoseconds between two looks for threads that record, several times what a recording takes (5
 * us), and of all of them, at most: the driver may block a recording. */
#define RECORDING_NS 20000
#define RECORDING_MOST_NS 1000000000ull

/* Its outstanding events are polled to the end; what is open gets none. */
static void meter_ends(struct meter_record *record) REQUIRES(meters_lock)
{
    share_charge_later((unsigned)record->device, -(int64_t)meter_give_up(&record->meter));
    meters_unlink(record);
}

/* A thread that waits at the gate may be recording on a stream that another thread is about to
 * end. */
static bool is_recorded_on(CUcontext handle, CUstream stream) REQUIRES(meters_lock)
{
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (events_others_record(record) &&
                ((handle && context->handle == handle) || meters_is_on(record, stream)))
                return true;
        }
    }
    return false;
}

/* At most RECORDING_MOST_NS, because the driver may block a thread in a recording; not at all in a
 * signal's handler that interrupted what holds the lock. */
static void wait_for_recording(CUcontext handle, CUstream stream) REQUIRES(meters_lock)
{
    uint64_t until = clock_now_ns() + RECORDING_MOST_NS;
    while (is_recorded_on(handle, stream) && lock_rest(&meters_lock, RECORDING_NS, until))
        continue;
}

void leave_capture_begins(CUstream stream)
{
    LOCKED_TO_END(meters_lock);
    wait_for_recording(NULL, stream);
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (record->orphan ||
                (!meters_is_on(record, stream) && record->stream != CU_STREAM_LEGACY))
                continue;
            meters_renew(record);
            record->opener = NULL;
        }
    }
}

static struct meter_record *open_on(CUstream stream) REQUIRES(meters_lock)
{
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *meter = context->meters; meter; meter = meter->next) {
            if (meters_is_on(meter, stream) && !meter->orphan && meter->meter.open.launches)
                return meter;
        }
    }
    return NULL;
}

void leave_close(CUstream stream)
{
    struct meter_record *meter = NULL;
    struct meter_run run = {.continuous = false};
    uint32_t id = 0;
    LOCKED(meters_lock) {
        meter = open_on(stream);
        if (meter)
            (void)completions_poll(meter->device);
        id = meter ? meter->id : 0;
        run.continuous = meter && meter->meter.count > 0;
    }
    if (meter && !capture_records(stream, STREAM_ZERO_LEGACY))
        events_record(meter, id, run);
}

void leave_stream(CUstream stream)
{
    LOCKED_TO_END(meters_lock);
    wait_for_recording(NULL, stream);
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (meters_is_on(record, stream) && !record->orphan)
                meter_ends(record);
        }
    }
}

void leave_thread(void)
{
    LOCKED_TO_END(meters_lock);
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (record->thread == meters_thread() && !record->orphan)
                meter_ends(record);
        }
    }
}

/* A meter on which a thread still records (wait_for_recording) goes when that is done; its context
 * stays for it without a handle. */
static void context_ends(struct pace_context *context) REQUIRES(meters_lock)
{
    for (struct meter_record **meter = &context->meters; *meter;) {
        while (meter_front(&(*meter)->meter))
            (void)cuda.cuEventDestroy_v2(meter_forget(&(*meter)->meter));
        if (!(*meter)->orphan)
            meter_ends(*meter);
        if ((*meter)->recording)
            meter = &(*meter)->next;
        else
            meters_drop(meter);
    }
    meters_context_drop(context);
}

void leave_context(CUcontext handle)
{
    struct capture_relaxed former = capture_relax();
    LOCKED(meters_lock) {
        wait_for_recording(handle, NULL);
        for (struct pace_context *context = meters_contexts(), *next; context; context = next) {
            next = context->next;
            if (context->handle != handle)
                continue;
            (void)completions_poll_context(context); /* charges for what was reached */
            context_ends(context);
        }
    }
    capture_restore(&former);
}
