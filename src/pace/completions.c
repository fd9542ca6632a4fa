/* SPDX-License-Identifier: Apache-2.0 */
/* Polls completions, and charges for them. */
#include "pace/completions.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "pace/capture.h"
#include "driver/cuda.h"
#include "pace/channels.h"
#include "pace/events.h"
#include "pace/gang.h"
#include "pace/policy.h"
#include "pace/spot_check.h"
#include "pace/tenants.h"
#include "pace/share.h"
#include "compute/budget.h"
#include "account/account.h"

/* Nanoseconds after which a reached event becomes the base: the driver tells the time between two
 * events in single precision, 60 ns over a second. */
#define REBASE_NS 1000000000ull
/* Charges that one visit to the account takes, at most: 2.5 KiB of stack. */
#define CHARGES 64
/* An event on an idle stream is reached within 3 us. The base is known from when its event was
 * seen, which may be late: the quickest of six events on idle streams corrects it. */
#define IDLE_EVENTS 6
#define IDLE_EVENT_NS 3000ull

uint64_t completions_count;

/* Completions of one device that are charged together. */
struct batch {
    int device;
    unsigned count;
    struct meter_charge charges[CHARGES];
};

static void charge_all(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct batch *batch = argument;
    struct closed_times *closed = channels_closed_times((unsigned)batch->device);
    int64_t balance = 0;
    uint64_t busy = 0;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct meter_charge *charge = &batch->charges[i];
        uint64_t new =
            closed_occupy(words, closed, charge->from_ns, charge->to_ns, charge->busy_ns);
        balance += (int64_t) new - (int64_t)charge->work_ns;
        busy += new;
        const struct budget_done done = {charge->busy_ns, new, charge->work_ns};
        share_settle((unsigned)batch->device, words, &done);
    }
    budget_charge(words, balance);
    if (own)
        add_relaxed(&own->gpu_time_ns, busy);
}

static void settle(struct batch *batch) REQUIRES(meters_lock)
{
    for (unsigned i = 0; i < batch->count; i++)
        spot_check_charged((unsigned)batch->device, &batch->charges[i]);
    if (batch->count)
        (void)account_visit_compute((unsigned)batch->device, charge_all, batch);
    batch->count = 0;
}

static struct meter_charge *charge_slot(struct batch *batch) REQUIRES(meters_lock)
{
    if (batch->count == CHARGES)
        settle(batch);
    return &batch->charges[batch->count];
}

/* When the front event of a context without a base was reached: by the time from it to the last of
 * the events behind it that are reached. */
static uint64_t first_reached_ns(const struct stream_meter *meter, uint64_t now_ns)
    REQUIRES(meters_lock)
{
    const struct timing_event *front = &meter->events[meter->first], *last = front;
    float milliseconds = 0;
    for (uint32_t i = 1; i < meter->count; i++) {
        const struct timing_event *next = &meter->events[(meter->first + i) % METER_EVENTS];
        if (cuda.cuEventQuery(next->handle) != CUDA_SUCCESS)
            break;
        last = next;
    }
    if (last != front)
        (void)cuda.cuEventElapsedTime(&milliseconds, front->handle, last->handle);
    uint64_t since = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0;
    return now_ns > front->recorded_ns + since ? now_ns - since : front->recorded_ns;
}

/* Nothing was before it, on the stream or, as far as is known, on the device. */
static bool was_idle(const struct stream_meter *meter, uint64_t at_ns)
{
    const struct timing_event *event = &meter->events[meter->first];
    const struct meter_interval *before = &event->before;
    bool beside = before->shared || before->siblings || (before->part && before->part < 1000);
    return !before->launches && !before->other && !before->continuous && !beside &&
           meter_open_between(meter, event->asked_ns, at_ns) == at_ns - event->asked_ns;
}

/* An event on an idle stream came `late_ns` after it was recorded: by how much earlier it was
 * reached, from the last six of these. */
static uint64_t sooner_by(struct pace_context *context, uint64_t late_ns)
{
    if (!context->idle_events || late_ns < context->late_ns)
        context->late_ns = late_ns;
    if (++context->idle_events < IDLE_EVENTS)
        return 0;
    context->idle_events = 0;
    return context->late_ns > IDLE_EVENT_NS ? context->late_ns - IDLE_EVENT_NS : 0;
}

/* Corrects the base, and what was derived from it. */
static void put_sooner(struct pace_context *context, uint64_t ns) REQUIRES(meters_lock)
{
    context->base_ns -= ns;
    for (struct meter_record *record = context->meters; record; record = record->next)
        meter_sooner(&record->meter, ns);
}

/* When the front event was reached, on the processor's clock. */
static uint64_t reached_ns(const struct meter_record *record, struct timing_event *front,
    uint64_t now_ns) REQUIRES(meters_lock)
{
    struct pace_context *context = record->context;
    float milliseconds = 0;
    if (!context->base)
        return first_reached_ns(&record->meter, now_ns);
    CUresult result = cuda.cuEventElapsedTime(&milliseconds, context->base, front->handle);
    if (result != CUDA_SUCCESS) {
        events_note_blind(context->device, result, now_ns);
        front->before.moved = true;
        return front->recorded_ns;
    }
    events_note_seen(context->device);
    uint64_t at = context->base_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    if (at > now_ns)
        now_ns = clock_now_ns(); /* it may have been reached since */
    uint64_t sure = at < front->asked_ns ? front->asked_ns : at > now_ns ? now_ns : at;
    front->before.moved = sure != at;
    context->base_ns += sure - at;
    if (!was_idle(&record->meter, sure))
        return sure;
    uint64_t sooner = sooner_by(context, sure - front->asked_ns);
    if (sooner)
        put_sooner(context, sooner);
    return sure - sooner;
}

/* A reached event becomes the base if the present one is too old. */
static void event_done(struct pace_context *context, CUevent event, uint64_t at_ns)
    REQUIRES(meters_lock)
{
    if (context->base && at_ns - context->base_ns < REBASE_NS) {
        meters_spare_give(context, event);
        return;
    }
    if (context->base)
        meters_spare_give(context, context->base);
    context->base = event;
    context->base_ns = at_ns;
}

/* Neighbours are only known at the governor's looks: they may have come after the event was
 * recorded. */
static void meet_others(struct meter_record *record, uint64_t at_ns)
{
    struct stream_meter *meter = &record->meter;
    unsigned device = (unsigned)record->device;
    struct slices_part part = policy_part_since(device, meter_front_since_ns(meter));
    uint64_t slice_ns, extended_since = tenants_extended_since_ns(device, &slice_ns);
    meter_front_beside(
        meter, (uint16_t)part.permille, (uint16_t)part.likely, part.others_us * 1000);
    if (extended_since)
        meter_front_extended(meter, extended_since, slice_ns, at_ns);
}

static void poll_meter(struct batch *batch, struct meter_record *record, uint64_t now_ns)
    REQUIRES(meters_lock)
{
    struct stream_meter *meter = &record->meter;
    for (struct timing_event *front; (front = meter_front(meter)) != NULL;) {
        CUresult result = cuda.cuEventQuery(front->handle);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS) {
            events_note_blind(record->device, result, now_ns);
            (void)cuda.cuEventDestroy_v2(meter_forget(meter));
            continue;
        }
        uint64_t at = reached_ns(record, front, now_ns);
        meet_others(record, at);
        gang_note(record->device, meter, at);
        struct meter_charge *charge = charge_slot(batch);
        CUevent event = meter_pass(meter, at, charge);
        batch->count++;
        if (charge->cut)
            tenants_note_cut((unsigned)record->device, charge->known);
        store_relaxed(&completions_count, completions_count + 1);
        event_done(record->context, event, at);
        record->stuck = false;
    }
    struct slices_part part = policy_part((unsigned)record->device);
    if (meter_run_on(meter, now_ns, part.likely, charge_slot(batch)))
        batch->count++;
}

unsigned completions_poll_context(struct pace_context *context)
{
    struct batch batch = {.device = context->device};
    uint64_t now = clock_now_ns();
    unsigned outstanding = 0;
    context->polled_ns = now;
    for (struct meter_record **link = &context->meters; *link;) {
        struct meter_record *record = *link;
        if (record->meter.count)
            poll_meter(&batch, record, now);
        outstanding += record->meter.count;
        if (record->orphan && !record->meter.count && !record->recording)
            meters_drop(link);
        else
            link = &record->next;
    }
    settle(&batch);
    return outstanding;
}

/* A query of an event would break another thread's capture. */
static unsigned poll_contexts(int device) REQUIRES(meters_lock)
{
    struct capture_relaxed former = capture_relax();
    unsigned outstanding = 0;
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        if (device < 0 || context->device == device)
            outstanding += completions_poll_context(context);
    }
    capture_restore(&former);
    return outstanding;
}

static void charge_one(int device, const struct meter_charge *charge) REQUIRES(meters_lock)
{
    struct batch batch = {.device = device, .count = 1, .charges = {*charge}};
    settle(&batch);
}

void completions_charge_run(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
{
    struct meter_charge charge;
    unsigned part = policy_part((unsigned)record->device).likely;
    if (meter_ran(&record->meter, from_ns, to_ns, part, &charge))
        charge_one(record->device, &charge);
}

void completions_charge_unmeasured(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
{
    unsigned part = policy_part((unsigned)record->device).likely;
    uint64_t open = meter_open_between(&record->meter, from_ns, to_ns);
    struct meter_charge charge = {
        .from_ns = from_ns, .to_ns = to_ns, .busy_ns = open / 1000 * part};
    charge_one(record->device, &charge);
}

bool completions_charge_done(struct meter_record *record, uint64_t from_ns, uint64_t to_ns,
    uint64_t work_ns, uint64_t charged_ns)
{
    struct meter_charge charge;
    if (!meter_done(&record->meter, from_ns, to_ns, work_ns, &charge))
        return false;
    charge.work_ns = charged_ns;
    charge_one(record->device, &charge);
    return true;
}

unsigned completions_poll(int device)
{
    return poll_contexts(device);
}

unsigned completions_poll_all(void)
{
    return poll_contexts(-1);
}
