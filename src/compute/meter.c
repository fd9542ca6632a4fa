/* SPDX-License-Identifier: Apache-2.0 */
/* Timing events, intervals and what they cost. */
#include "compute/meter.h"

#include "compute/durations.h"

#include <stddef.h>

/* Nanoseconds by which work must exceed its estimate before it is charged as it runs: what opens
 * the gate (BUDGET_OPEN_NS). */
#define RUN_ON_NS 2000000ull
/* Nanoseconds. An interval with a closure in it must be open for this long to teach a duration:
 * begin and end of a closure are known to 0.1 ms, 1 % of this. */
#define CLOSURE_LEARN_NS 10000000ull
/* Nanoseconds. An interval longer than this had several time slices, which last up to 16 ms. */
#define MANY_SLICES_NS 40000000ull

/* Nanoseconds of estimated work by which sums of estimates are corrected; beyond this, half is
 * forgotten. SURE_PRIOR_NS counts as correct from the beginning. */
#define SURE_WORK_NS 64000000ull
#define SURE_PRIOR_NS 2000000ull
/* Nanoseconds. An interval that met a time slice of others took at least this much beyond its own
 * time: two changes of group take 185 us each (H200, driver 580.159.04). */
#define CLEAN_NS 100000ull

/* Nanoseconds. A longer kernel meets others' time slices each time it runs. */
#define EXCEEDED_MOST_NS 5000000ull
/* Nanoseconds. A shorter kernel often enough runs between two changes. */
#define BLURRED_NS 1000000ull
/* The same for other processes of the container, whose time slices last 2 ms. */
#define EXCEEDED_SIBLINGS_NS 1500000ull

/* Launches in an interval that corrects sums: with one or two, chance and the events' own time
 * weigh too much. */
#define SURE_LAUNCHES 4
/* Percent of its estimates between which an interval corrects sums: outside, it met something
 * else. */
#define SURE_PERCENT_MAX 130
#define SURE_PERCENT_MIN 80

static bool is_unknown(const struct meter_interval *interval)
{
    return interval->launches && !interval->work_ns;
}

static void set_part(
    struct meter_interval *interval, uint16_t part, uint16_t likely, uint64_t others_ns)
{
    interval->part = part;
    interval->likely = likely > part ? likely : part;
    interval->others_ns = others_ns;
}

void meter_add_event(
    struct stream_meter *meter, void *handle, uint64_t recorded_ns, const struct meter_run *run)
{
    struct timing_event *event = &meter->events[(meter->first + meter->count) % METER_EVENTS];
    uint64_t asked = run->asked_ns ? run->asked_ns : recorded_ns;
    *event = (struct timing_event){handle, asked, recorded_ns, meter->open};
    event->before.continuous = run->continuous;
    event->before.measured = run->measured;
    event->before.late = run->launched_ns && recorded_ns > run->launched_ns + METER_LATE_NS;
    event->before.shared = run->shared;
    event->before.siblings = run->siblings;
    event->before.apart = run->apart && !event->before.launches && !event->before.other;
    set_part(&event->before, run->part, run->likely, run->others_ns);
    event->before.gap_ns = run->gap_ns;
    meter->count++;
    meter->unknown += is_unknown(&event->before);
    meter->open = (struct meter_interval){0};
}

struct timing_event *meter_front(struct stream_meter *meter)
{
    return meter->count ? &meter->events[meter->first] : NULL;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static uint64_t above(uint64_t value, uint64_t floor)
{
    return value > floor ? value - floor : 0;
}

uint64_t meter_open_between(const struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t wall = above(to_ns, from_ns);
    return above(wall, closed_between(meter->closed, from_ns, to_ns));
}

void meter_sooner(struct stream_meter *meter, uint64_t ns)
{
    meter->reached_ns = above(meter->reached_ns, ns);
}

/* Device time of an event, which is also what a pair of them adds to a launch between them. */
static uint64_t event_ns(const struct stream_meter *meter)
{
    return meter->event_ns ? meter->event_ns : METER_EVENT_NS;
}

/* When the device has finished with the event, if it had only events to do: by the processor's
 * clock, and earlier than in truth by the time in which the device is told of anything. */
static uint64_t done_with_ns(const struct stream_meter *meter, const struct timing_event *event)
{
    uint64_t call = above(event->recorded_ns, event->asked_ns);
    uint64_t told = event->recorded_ns - call / METER_TOLD_PART;
    return (meter->done_ns > told ? meter->done_ns : told) + event_ns(meter);
}

/* How long the device waited for the launch of the interval on an idle stream: it was busy with the
 * events before it while the processor came to the launch. */
static uint64_t idle_ns(const struct stream_meter *meter, const struct meter_interval *interval)
{
    uint64_t behind = above(meter->done_ns, meter->former_ns);
    return interval->continuous ? 0 : above(interval->gap_ns, behind);
}

/* How long a launch took that was put onto an idle stream and for which the device waited for
 * `waited_ns` after the event before it. */
static uint64_t alone_ns(const struct stream_meter *meter, uint64_t wall_ns, uint64_t waited_ns)
{
    return above(wall_ns + METER_BEGIN_NS, waited_ns + event_ns(meter));
}

/* Two events right behind each other. If the processor took about as long to record the second, the
 * device may have waited for that: an event takes no longer. */
static void learn_event(struct stream_meter *meter, uint64_t wall_ns, uint64_t gap_ns)
{
    bool sure = wall_ns > 2 * gap_ns;
    uint64_t took = wall_ns > METER_EVENT_LEAST_NS ? wall_ns : METER_EVENT_LEAST_NS;
    int64_t known = meter->event_ns;
    if (took > METER_EVENT_MOST_NS)
        return;
    if (sure && !meter->event_sure)
        meter->event_ns = (uint32_t)took;
    else if (!known)
        meter->event_ns = METER_EVENT_LEAST_NS;
    else if (sure || (int64_t)took < known)
        meter->event_ns = (uint32_t)(known + ((int64_t)took - known) / 8);
    meter->event_sure |= sure;
}

static bool is_in_part(const struct meter_interval *interval)
{
    return interval->part && interval->part < 1000;
}

uint64_t meter_front_since_ns(const struct stream_meter *meter)
{
    const struct meter_interval *interval = &meter->events[meter->first].before;
    bool behind = interval->continuous || interval->first_ns < meter->reached_ns;
    return behind ? meter->reached_ns : interval->first_ns;
}

bool meter_front_works(const struct stream_meter *meter)
{
    const struct meter_interval *front = &meter->events[meter->first].before;
    return meter->count && front->launches && !front->other;
}

uint64_t meter_front_running_ns(const struct stream_meter *meter, uint64_t now_ns)
{
    return above(
        meter_open_between(meter, meter_front_since_ns(meter), now_ns), meter->occupied_ns);
}

void meter_front_beside(
    struct stream_meter *meter, uint16_t part, uint16_t likely, uint64_t others_ns)
{
    struct meter_interval *interval = &meter->events[meter->first].before;
    if (!is_in_part(interval) && part < 1000)
        set_part(interval, part, likely, others_ns);
}

void meter_front_extended(
    struct stream_meter *meter, uint64_t since_ns, uint64_t slice_ns, uint64_t at_ns)
{
    uint64_t from = meter->reached_ns;
    meter->events[meter->first].before.extended =
        meter->started && from >= since_ns && at_ns < from + slice_ns;
}

/* Others' work may have come before its own. */
static bool may_have_waited(const struct meter_interval *interval)
{
    return interval->shared || interval->siblings;
}

static uint64_t part_of(uint64_t wall_ns, unsigned part)
{
    return wall_ns / 1000 * part;
}

/* Corrects sums of estimates by an interval that never ran dry and held nothing but launches. */
static void compare(
    struct stream_meter *meter, const struct meter_interval *interval, uint64_t wall_ns)
{
    if (!interval->continuous || interval->other || may_have_waited(interval) ||
        is_in_part(interval) || interval->replaced || interval->launches < SURE_LAUNCHES ||
        !interval->work_ns)
        return;
    uint64_t percent = wall_ns / (interval->work_ns / 100 + 1);
    if (percent < SURE_PERCENT_MIN || percent > SURE_PERCENT_MAX)
        return;
    if (meter->sure_work_ns >= SURE_WORK_NS) {
        meter->sure_work_ns /= 2;
        meter->sure_wall_ns /= 2;
    }
    meter->sure_work_ns += interval->work_ns;
    meter->sure_wall_ns += wall_ns;
}

/* What launches with estimates of `work_ns` in all really take. */
static uint64_t set_right(const struct stream_meter *meter, uint64_t work_ns)
{
    double wall = (double)(meter->sure_wall_ns + SURE_PRIOR_NS);
    return (uint64_t)((double)work_ns * wall / (double)(meter->sure_work_ns + SURE_PRIOR_NS));
}

/* What of a time in which other containers worked was surely this container's: it may have begun
 * with their time slices. */
static uint64_t least_of(const struct meter_interval *interval, uint64_t wall_ns)
{
    return is_in_part(interval) ? part_of(above(wall_ns, interval->others_ns), interval->part)
                                : wall_ns;
}

/* A kernel of many time slices may have been learnt in time slices as well: it takes no more than
 * what the others left. */
static uint64_t own_part(const struct meter_interval *interval, uint64_t wall_ns, uint64_t work_ns)
{
    uint64_t least = least_of(interval, wall_ns) / 2, most = part_of(wall_ns, interval->likely);
    if (!work_ns)
        return part_of(wall_ns, interval->part);
    bool sure = interval->measured && duration_is_alone(interval->key);
    if (!sure && wall_ns > MANY_SLICES_NS && work_ns > most + most / 4)
        return most + most / 4;
    return work_ns < least ? least : at_most(work_ns, wall_ns);
}

/* The estimate of a launch may be better by now than when it was admitted: a queue can be long. A
 * launch's own first measurement does not count for it. */
static uint64_t known_work(const struct meter_interval *interval, uint64_t work_ns, bool first)
{
    uint64_t known = interval->measured && !first ? duration_of(interval->key) : 0;
    return known ? known : work_ns;
}

/* The interval of `event` was from `from_ns` to `to_ns`; `first`: its launch was unknown before. */
static uint64_t busy_of(const struct stream_meter *meter, const struct timing_event *event,
    uint64_t from_ns, uint64_t to_ns, bool first)
{
    const struct meter_interval *interval = &event->before;
    uint64_t wall = meter_open_between(meter, from_ns, to_ns),
             work = set_right(meter, interval->work_ns);
    if (!interval->launches)
        return 0;
    if (interval->other)
        return at_most(work, wall);
    bool measured = interval->measured && !interval->late;
    /* Beside others the event before it may have waited for this container's time slice: then no
     * gap passed. */
    if (measured && !interval->continuous)
        wall = alone_ns(meter, wall, is_in_part(interval) ? 0 : idle_ns(meter, interval));
    if (interval->continuous || measured)
        return is_in_part(interval) ? own_part(interval, wall, known_work(interval, work, first))
                                    : wall;
    /* After the last launch it ran without a pause. */
    uint64_t sure = meter_open_between(meter, event->recorded_ns, to_ns);
    if (is_in_part(interval))
        sure = own_part(interval, sure, at_most(work, sure));
    return at_most(work > sure ? work : sure, wall);
}

/* While other containers or processes work: if an interval hardly exceeds its estimate, no time
 * slice of theirs was in it. On an idle stream the event before the launch may have waited for this
 * container's time slice until the launch was there: how much of the gap passed before it ran is
 * not known, so that it took from `least_ns` to `most_ns`. */
static void learn_in_part(
    const struct meter_interval *interval, uint64_t known, uint64_t least_ns, uint64_t most_ns)
{
    bool uncertain = interval->shared || interval->late;
    uint64_t exceeded_most = is_in_part(interval) ? EXCEEDED_MOST_NS : EXCEEDED_SIBLINGS_NS;
    if (!uncertain && is_in_part(interval) && duration_is_alone(interval->key))
        duration_distrust(interval->key, least_of(interval, most_ns) > known + known / 8);
    if (most_ns < known / 4 * 3)
        duration_shorten(interval->key, most_ns > known / 2 ? most_ns : known / 2);
    else if (most_ns < known)
        duration_learn(interval->key, most_ns);
    else if (least_ns <= known)
        duration_learn(interval->key, known);
    else if (uncertain || least_ns > exceeded_most)
        duration_confirm(interval->key);
    else if (least_ns < known + at_most(known / 4, CLEAN_NS))
        duration_learn(interval->key, least_ns);
    else
        duration_exceeded(interval->key, least_ns);
}

/* One launch that others' time slices cut whenever they work. */
static bool is_cut(const struct meter_interval *interval)
{
    return interval->measured && !interval->other && interval->launches == 1 &&
           is_in_part(interval) && !may_have_waited(interval) &&
           duration_of(interval->key) >= BLURRED_NS;
}

/* Learns from one launch, `wall_ns` from event to event. If it may have waited for other streams'
 * work, or its event came late, that shows only that it takes no longer. */
static void learn(
    const struct stream_meter *meter, const struct meter_interval *interval, uint64_t wall_ns)
{
    if (!interval->measured || interval->other || interval->launches != 1)
        return;
    bool beside = is_in_part(interval) || interval->siblings;
    uint64_t known = duration_of(interval->key);
    uint64_t most =
        interval->continuous ? above(wall_ns, event_ns(meter)) : alone_ns(meter, wall_ns, 0);
    uint64_t took = above(most, idle_ns(meter, interval));
    if (beside && (interval->moved || meter->moved))
        /* A duration that is too short would be kept for as long as others work. */
        duration_confirm(interval->key);
    else if (!known && beside)
        duration_learn(
            interval->key, interval->late || interval->gap_ns > METER_LATE_NS ? most : took);
    else if (!known)
        duration_learn_alone(interval->key, took);
    else if (beside && interval->extended && !may_have_waited(interval) && most >= BLURRED_NS)
        duration_learn_extended(interval->key, most);
    else if (beside)
        learn_in_part(interval, known, took, most);
    else if (took < known || !(interval->shared || interval->late))
        duration_learn_alone(interval->key, took);
    else
        duration_confirm(interval->key);
}

/* Learns from one launch that was admitted by estimate onto an empty stream: it took no longer than
 * from the launch to its event, and ran at least since the event was recorded, if that was within
 * its estimate. */
static void learn_dry(const struct stream_meter *meter, const struct timing_event *event,
    uint64_t from_ns, uint64_t to_ns)
{
    const struct meter_interval *interval = &event->before;
    bool uncertain = interval->other || interval->shared || interval->siblings || interval->moved ||
                     is_in_part(interval);
    uint64_t known = duration_of(interval->key), most = above(to_ns, interval->first_ns),
             least = above(to_ns, event->recorded_ns + event_ns(meter));
    bool dry = !interval->continuous && !interval->measured && interval->first_ns > from_ns;
    if (!known || !dry || interval->launches != 1 || uncertain)
        return;
    if (most < known)
        duration_learn_alone(interval->key, most);
    else if (least > known && event->recorded_ns < interval->first_ns + known)
        duration_learn_alone(interval->key, least);
    else
        duration_confirm(interval->key);
}

void *meter_forget(struct stream_meter *meter)
{
    void *handle = meter->events[meter->first].handle;
    meter->unknown -= is_unknown(&meter->events[meter->first].before);
    meter->occupied_to_ns = meter->occupied_ns = 0;
    meter->occupied_in_part = false;
    meter->first = (meter->first + 1) % METER_EVENTS;
    meter->count--;
    return handle;
}

/* If the stream may have run dry, nothing ran before the first launch. An event on an idle stream
 * is reached late if the device has to change to this process first: that time is charged. */
static uint64_t begin_of(const struct stream_meter *meter, const struct meter_interval *interval,
    uint64_t from_ns, uint64_t to_ns)
{
    if (interval->measured && !interval->continuous && may_have_waited(interval))
        return at_most(meter->former_ns, from_ns);
    if (interval->continuous || interval->measured || interval->first_ns < from_ns)
        return from_ns;
    return at_most(interval->first_ns, to_ns);
}

/* What was charged as it ran, beside others, ran on from there to its event. If the stream may have
 * run dry since, only the time after the event was recorded is sure. */
static uint64_t rest_in_part(const struct stream_meter *meter, const struct timing_event *event,
    uint64_t from_ns, uint64_t to_ns, uint64_t thought_ns)
{
    const struct meter_interval *interval = &event->before;
    bool dry = !interval->continuous && !interval->measured;
    uint64_t sure_ns = dry && event->recorded_ns > from_ns ? event->recorded_ns : from_ns;
    uint64_t rest = meter_open_between(meter, sure_ns, to_ns);
    if (is_in_part(interval))
        rest = part_of(rest, interval->part);
    return dry && rest < thought_ns ? thought_ns : rest;
}

/* By how much an interval exceeded its estimates; between two that never ran dry lie events and
 * pauses. */
static uint64_t longer_by(const struct meter_interval *interval, uint64_t busy_ns)
{
    uint64_t longer = above(busy_ns, interval->work_ns);
    return interval->continuous && longer < interval->work_ns / 2 ? 0 : longer;
}

/* `rest_ns` of the interval is not charged yet, and does not fit behind what was charged as it ran:
 * another thread launched it by estimate on the same stream, beside that. */
static bool was_admitted_beside(
    const struct stream_meter *meter, uint64_t rest_ns, uint64_t from_ns, uint64_t at_ns)
{
    return !meter->occupied_in_part && rest_ns > above(at_ns, meter->occupied_to_ns) &&
           meter->occupied_ns < above(meter->occupied_to_ns, from_ns) / 2;
}

void *meter_pass(struct stream_meter *meter, uint64_t at_ns, struct meter_charge *ret_charge)
{
    struct timing_event *event = &meter->events[meter->first];
    const struct meter_interval *interval = &event->before;
    uint64_t from = meter->started ? meter->reached_ns : at_ns;
    bool cut = false, first = !duration_of(interval->key);
    if (at_ns < from)
        at_ns = from;
    if (meter->started) {
        uint64_t open = meter_open_between(meter, from, at_ns);
        /* Begin and end of a closure are known to 0.1 ms, and less well if the governor did not
         * run: beside others a duration that is too short would stay, but an unknown one is
         * worse. */
        if (open == at_ns - from || (open >= CLOSURE_LEARN_NS && (first || !is_in_part(interval))))
            learn(meter, interval, open);
        if (open == at_ns - from) {
            learn_dry(meter, event, from, at_ns);
            compare(meter, interval, open);
        }
        if (interval->apart)
            learn_event(meter, open, event->recorded_ns - meter->former_ns);
        cut = is_cut(interval);
        from = begin_of(meter, interval, from, at_ns);
    }
    uint64_t busy = busy_of(meter, event, from, at_ns, first);
    *ret_charge = (struct meter_charge){.from_ns = from, .to_ns = at_ns, .busy_ns = busy};
    ret_charge->launches = interval->launches;
    ret_charge->measured = interval->measured;
    ret_charge->cut = cut;
    ret_charge->known = duration_is_alone(interval->key);
    ret_charge->work_ns = interval->replaced ? 0 : interval->work_ns;
    meter->longer_ns += longer_by(interval, busy);
    if (meter->occupied_to_ns) {
        uint64_t rest = above(busy, meter->occupied_ns);
        if (meter->occupied_to_ns > from && !was_admitted_beside(meter, rest, from, at_ns))
            ret_charge->from_ns = at_most(meter->occupied_to_ns, at_ns);
        ret_charge->busy_ns = rest;
        if (meter->occupied_in_part && !interval->other)
            ret_charge->busy_ns =
                rest_in_part(meter, event, ret_charge->from_ns, at_ns, ret_charge->busy_ns);
    }
    meter->started = true;
    meter->moved = interval->moved;
    meter->reached_ns = at_ns;
    meter->former_ns = event->recorded_ns;
    meter->done_ns = done_with_ns(meter, event);
    return meter_forget(meter);
}

/* From when on the front interval runs without a pause, as far as is known. */
static uint64_t began_ns(const struct stream_meter *meter, const struct timing_event *event)
{
    bool dry = !event->before.continuous && (!event->before.measured || event->before.late);
    return dry && event->recorded_ns > meter->reached_ns ? event->recorded_ns : meter->reached_ns;
}

/* How long the front interval has run, at least; 0 if that is not known, or nothing runs. */
static uint64_t run_ns(const struct stream_meter *meter, uint64_t now_ns)
{
    const struct timing_event *event = meter->count ? &meter->events[meter->first] : NULL;
    if (!event || !meter->started || !event->before.launches || event->before.other)
        return 0;
    return least_of(&event->before, meter_open_between(meter, began_ns(meter, event), now_ns));
}

bool meter_runs_for(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns)
{
    return run_ns(meter, now_ns) >= least_ns;
}

uint64_t meter_long_in_ns(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns)
{
    const struct timing_event *event = meter->count ? &meter->events[meter->first] : NULL;
    uint64_t run = run_ns(meter, now_ns);
    bool expected = event && (event->before.work_ns >= least_ns ||
                                 run > event->before.work_ns + RUN_ON_NS || meter->unknown);
    return expected ? above(least_ns, run) : UINT64_MAX;
}

bool meter_is_on_way(const struct stream_meter *meter, uint64_t now_ns)
{
    uint64_t from = meter->open.first_ns;
    if (from < meter->reached_ns)
        from = meter->reached_ns;
    return meter->count || (meter->open.launches && now_ns < from + meter->open.work_ns);
}

uint64_t meter_left_ns(const struct stream_meter *meter, uint64_t now_ns)
{
    uint64_t left = 0, run = run_ns(meter, now_ns);
    for (uint32_t i = 0; i < meter->count; i++) {
        const struct meter_interval *interval =
            &meter->events[(meter->first + i) % METER_EVENTS].before;
        if (!interval->replaced)
            left += i ? interval->work_ns : above(interval->work_ns, run);
    }
    return left;
}

/* The begin of what is not charged of the running interval. */
static uint64_t unoccupied_from(const struct stream_meter *meter, uint64_t from_ns)
{
    return meter->occupied_to_ns > from_ns ? meter->occupied_to_ns : from_ns;
}

static void occupy_for(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns,
    uint64_t busy_ns, struct meter_charge *ret_charge)
{
    *ret_charge = (struct meter_charge){.from_ns = from_ns, .to_ns = to_ns, .busy_ns = busy_ns};
    meter->occupied_to_ns = to_ns;
    meter->occupied_ns += busy_ns;
}

/* Charges it as it runs. */
static void occupy(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct meter_charge *ret_charge)
{
    uint64_t busy = meter_open_between(meter, from_ns, to_ns);
    if (part < 1000) {
        busy = part_of(busy, part);
        meter->occupied_in_part = true;
    }
    occupy_for(meter, from_ns, to_ns, busy, ret_charge);
}

bool meter_ran(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct meter_charge *ret_charge)
{
    uint64_t from = unoccupied_from(meter, from_ns);
    if (meter->count || meter->open.other || !meter_open_between(meter, from, to_ns))
        return false;
    occupy(meter, from, to_ns, part, ret_charge);
    return true;
}

bool meter_done(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, uint64_t work_ns,
    struct meter_charge *ret_charge)
{
    uint64_t most = at_most(work_ns, meter_open_between(meter, from_ns, to_ns));
    uint64_t from = unoccupied_from(meter, from_ns);
    /* If another thread's work is charged up to now, there is no room for this thread's. */
    uint64_t busy =
        at_most(above(most, meter->occupied_ns), meter_open_between(meter, from, to_ns));
    if (meter->count || !busy)
        return false;
    occupy_for(meter, from, to_ns, busy, ret_charge);
    return true;
}

uint64_t meter_give_up(struct stream_meter *meter)
{
    uint64_t charged = meter->count ? 0 : at_most(meter->occupied_ns, meter->open.work_ns);
    meter->open = (struct meter_interval){0};
    if (!meter->count)
        meter->occupied_to_ns = meter->occupied_ns = 0;
    return charged;
}

bool meter_run_on(
    struct stream_meter *meter, uint64_t now_ns, unsigned part, struct meter_charge *ret_charge)
{
    struct timing_event *event = meter_front(meter);
    if (!event || !meter_runs_for(meter, now_ns, event->before.work_ns + RUN_ON_NS))
        return false;
    struct meter_interval *interval = &event->before;
    uint64_t from = unoccupied_from(meter, began_ns(meter, event));
    if (meter_open_between(meter, from, now_ns) < RUN_ON_NS)
        return false;
    occupy(meter, from, now_ns, part, ret_charge);
    /* If it waits for other streams' work, its own is still to come. */
    ret_charge->work_ns = interval->replaced || may_have_waited(interval) ? 0 : interval->work_ns;
    interval->replaced = !may_have_waited(interval);
    return true;
}
