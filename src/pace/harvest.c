/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that were reached, and what is charged for them. */
#include "pace/context.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "pace/capture.h"
#include "driver/cuda.h"
#include "pace/channels.h"
#include "pace/couple.h"
#include "pace/gate.h"
#include "pace/rules.h"
#include "pace/spot_check.h"
#include "pace/tenants.h"
#include "compute/budget.h"
#include "region/account.h"

/* The driver tells the time between two events in single precision: good to 60 ns over a second. */
#define REBASE_NS 1000000000ull
#define CHARGES 64
/* A mark on an idle stream is reached within some microseconds: the quickest of so many tell how
 * late the base was put, which is known from when its mark was seen to be reached. */
#define IDLE_MARKS 6
#define IDLE_MARK_NS 3000ull

uint64_t marks_reached;

struct harvest {
    int device;
    unsigned count;
    struct meter_charge charges[CHARGES];
};

static void charge_all(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct harvest *harvest = argument;
    struct closed_times *closed = channels_closed_times((unsigned)harvest->device);
    int64_t balance = 0;
    uint64_t busy = 0;
    for (unsigned i = 0; i < harvest->count; i++) {
        const struct meter_charge *charge = &harvest->charges[i];
        uint64_t new =
            closed_occupy(words, closed, charge->from_ns, charge->to_ns, charge->busy_ns);
        balance += (int64_t) new - (int64_t)charge->work_ns;
        busy += new;
        const struct budget_done done = {charge->busy_ns, new, charge->work_ns};
        gate_settle(harvest->device, words, &done);
    }
    budget_charge(words, balance);
    if (own)
        add_relaxed(&own->gpu_time_ns, busy);
}

static void settle(struct harvest *harvest) REQUIRES(marks_lock)
{
    for (unsigned i = 0; i < harvest->count; i++)
        spot_check_charged((unsigned)harvest->device, &harvest->charges[i]);
    if (harvest->count)
        (void)account_visit_compute((unsigned)harvest->device, charge_all, harvest);
    harvest->count = 0;
}

static struct meter_charge *charge_slot(struct harvest *harvest) REQUIRES(marks_lock)
{
    if (harvest->count == CHARGES)
        settle(harvest);
    return &harvest->charges[harvest->count];
}

/* The front mark of a context that has no base yet: it was reached so long ago as the events behind
 * it say that were reached since. */
static uint64_t first_reached_ns(const struct stream_meter *meter, uint64_t now_ns)
    REQUIRES(marks_lock)
{
    const struct meter_mark *front = &meter->marks[meter->first], *last = front;
    float milliseconds = 0;
    for (uint32_t i = 1; i < meter->count; i++) {
        const struct meter_mark *mark = &meter->marks[(meter->first + i) % METER_MARKS];
        if (cuda.cuEventQuery(mark->event) != CUDA_SUCCESS)
            break;
        last = mark;
    }
    if (last != front)
        (void)cuda.cuEventElapsedTime(&milliseconds, front->event, last->event);
    uint64_t since = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0;
    return now_ns > front->recorded_ns + since ? now_ns - since : front->recorded_ns;
}

/* Nothing was before it, neither on the stream nor on the device as far as it is known. */
static bool was_idle(const struct stream_meter *meter, uint64_t at_ns)
{
    const struct meter_mark *mark = &meter->marks[meter->first];
    const struct meter_stretch *before = &mark->before;
    bool beside = before->shared || before->siblings || (before->part && before->part < 1000);
    return !before->launches && !before->other && !before->continuous && !beside &&
           meter_open_between(meter, mark->asked_ns, at_ns) == at_ns - mark->asked_ns;
}

/* A mark on an idle stream came `late_ns` after it was asked for: how much sooner it was reached,
 * by the last of them. */
static uint64_t sooner_by(struct pace_context *context, uint64_t late_ns)
{
    if (!context->idle_marks || late_ns < context->late_ns)
        context->late_ns = late_ns;
    if (++context->idle_marks < IDLE_MARKS)
        return 0;
    context->idle_marks = 0;
    return context->late_ns > IDLE_MARK_NS ? context->late_ns - IDLE_MARK_NS : 0;
}

/* All that was told by the base was so much sooner. */
static void put_sooner(struct pace_context *context, uint64_t ns) REQUIRES(marks_lock)
{
    context->base_ns -= ns;
    for (struct meter_record *record = context->meters; record; record = record->next)
        meter_sooner(&record->meter, ns);
}

/* When the front mark was reached, on the processor's clock. */
static uint64_t reached_ns(const struct meter_record *record, struct meter_mark *mark,
    uint64_t now_ns) REQUIRES(marks_lock)
{
    struct pace_context *context = record->context;
    float milliseconds = 0;
    if (!context->base)
        return first_reached_ns(&record->meter, now_ns);
    CUresult result = cuda.cuEventElapsedTime(&milliseconds, context->base, mark->event);
    if (result != CUDA_SUCCESS) {
        marks_note_blind(context->device, result, now_ns);
        mark->before.moved = true;
        return mark->recorded_ns;
    }
    marks_note_seen(context->device);
    uint64_t at = context->base_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    if (at > now_ns)
        now_ns = clock_now_ns(); /* it may have been reached since */
    uint64_t sure = at < mark->asked_ns ? mark->asked_ns : at > now_ns ? now_ns : at;
    mark->before.moved = sure != at;
    context->base_ns += sure - at;
    if (!was_idle(&record->meter, sure))
        return sure;
    uint64_t sooner = sooner_by(context, sure - mark->asked_ns);
    if (sooner)
        put_sooner(context, sooner);
    return sure - sooner;
}

/* A mark that was reached is the base of those to come when the former one is too long ago. */
static void event_done(struct pace_context *context, CUevent event, uint64_t at_ns)
    REQUIRES(marks_lock)
{
    if (context->base && at_ns - context->base_ns < REBASE_NS) {
        marks_spare_give(context, event);
        return;
    }
    if (context->base)
        marks_spare_give(context, context->base);
    context->base = event;
    context->base_ns = at_ns;
}

/* Whether neighbours work is only known at the governor's looks: they may have come after the mark
 * was recorded. */
static void meet_others(struct meter_record *record, uint64_t at_ns)
{
    struct stream_meter *meter = &record->meter;
    unsigned device = (unsigned)record->device;
    struct turns_part part = rules_part_since(device, meter_front_since_ns(meter));
    uint64_t turn_ns, whole_since = tenants_whole_since_ns(device, &turn_ns);
    meter_front_beside(
        meter, (uint16_t)part.permille, (uint16_t)part.likely, part.others_us * 1000);
    if (whole_since)
        meter_front_whole(meter, whole_since, turn_ns, at_ns);
}

static void harvest_meter(struct harvest *harvest, struct meter_record *record, uint64_t now_ns)
    REQUIRES(marks_lock)
{
    struct stream_meter *meter = &record->meter;
    for (struct meter_mark *mark; (mark = meter_front(meter)) != NULL;) {
        CUresult result = cuda.cuEventQuery(mark->event);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS) {
            marks_note_blind(record->device, result, now_ns);
            (void)cuda.cuEventDestroy_v2(meter_forget(meter));
            continue;
        }
        uint64_t at = reached_ns(record, mark, now_ns);
        meet_others(record, at);
        couple_note(record->device, meter, at);
        struct meter_charge *charge = charge_slot(harvest);
        CUevent event = meter_pass(meter, at, charge);
        harvest->count++;
        if (charge->cut)
            tenants_note_cut((unsigned)record->device, charge->known);
        store_relaxed(&marks_reached, marks_reached + 1);
        event_done(record->context, event, at);
        record->stuck = false;
    }
    struct turns_part part = rules_part((unsigned)record->device);
    if (meter_run_on(meter, now_ns, part.likely, charge_slot(harvest)))
        harvest->count++;
}

unsigned marks_harvest_context(struct pace_context *context)
{
    struct harvest harvest = {.device = context->device};
    uint64_t now = clock_now_ns();
    unsigned outstanding = 0;
    context->harvested_ns = now;
    for (struct meter_record **link = &context->meters; *link;) {
        struct meter_record *record = *link;
        if (record->meter.count)
            harvest_meter(&harvest, record, now);
        outstanding += record->meter.count;
        if (record->orphan && !record->meter.count && !record->recording)
            marks_meter_drop(link);
        else
            link = &record->next;
    }
    settle(&harvest);
    return outstanding;
}

/* Asking for an event is what another thread's capture would be spoilt by. */
static unsigned harvest_contexts(int device) REQUIRES(marks_lock)
{
    struct capture_relaxed former = capture_relax();
    unsigned outstanding = 0;
    for (struct pace_context *context = marks_contexts(); context; context = context->next) {
        if (device < 0 || context->device == device)
            outstanding += marks_harvest_context(context);
    }
    capture_restore(&former);
    return outstanding;
}

static void charge_one(int device, const struct meter_charge *charge) REQUIRES(marks_lock)
{
    struct harvest harvest = {.device = device, .count = 1, .charges = {*charge}};
    settle(&harvest);
}

void marks_charge_run(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
{
    struct meter_charge charge;
    unsigned part = rules_part((unsigned)record->device).likely;
    if (meter_ran(&record->meter, from_ns, to_ns, part, &charge))
        charge_one(record->device, &charge);
}

void marks_charge_unmeasured(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
{
    unsigned part = rules_part((unsigned)record->device).likely;
    uint64_t open = meter_open_between(&record->meter, from_ns, to_ns);
    struct meter_charge charge = {
        .from_ns = from_ns, .to_ns = to_ns, .busy_ns = open / 1000 * part};
    charge_one(record->device, &charge);
}

bool marks_charge_done(struct meter_record *record, uint64_t from_ns, uint64_t to_ns,
    uint64_t work_ns, uint64_t charged_ns)
{
    struct meter_charge charge;
    if (!meter_done(&record->meter, from_ns, to_ns, work_ns, &charge))
        return false;
    charge.work_ns = charged_ns;
    charge_one(record->device, &charge);
    return true;
}

unsigned marks_harvest(int device)
{
    return harvest_contexts(device);
}

unsigned marks_harvest_all(void)
{
    return harvest_contexts(-1);
}
