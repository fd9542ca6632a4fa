/* SPDX-License-Identifier: Apache-2.0 */
/* A stream meter: the timing events of one stream, and between two of them an interval of launches.
 * The driver puts its time on a timing event. How long an interval kept the GPU busy follows from
 * the times of the events at its ends:
 *
 * - launches only, and the stream never ran dry: from end to end;
 * - one launch, put onto an idle stream: from end to end, less what the events add and what the
 *   device waited for the launch after it had finished with the event before it;
 * - otherwise (the stream may have run dry, or waited, or copied): the sum of the launches' learnt
 *   durations, at most from end to end. What such sums miss (pauses between kernels, fills, small
 *   copies, the events) is known from the intervals that never ran dry.
 *
 * Time in which the channel gate was closed is not charged. While other containers work, the time
 * between two events is theirs too: then the sums count, but not less than half of this container's
 * part of that time without one time slice of theirs; an unknown launch counts as this container's
 * part.
 *
 * Pure: no driver, no clock. The caller's lock guards a meter. Times are nanoseconds of
 * CLOCK_MONOTONIC. */
#ifndef VGPU_COMPUTE_METER_H
#define VGPU_COMPUTE_METER_H

#include "compute/closed.h"

#include <stdbool.h>
#include <stdint.h>

/* Events outstanding on a stream, at most: 0.26 s of work at one per BUDGET_QUANTUM_NS. */
#define METER_EVENTS 256u

struct meter_interval {
    uint64_t work_ns;  /* the launches' learnt durations, as they were charged */
    uint64_t gap_ns;   /* from the event before to the launch, where the stream was idle */
    uint64_t key;      /* of its last launch (compute/durations.h) */
    uint64_t first_ns; /* when its first launch was made, by the processor's clock */
    uint32_t launches;
    bool other;         /* it holds something else than kernels, which may take long */
    bool continuous;    /* the event before it was outstanding when its own was recorded */
    bool measured;      /* one launch, right behind the event before it */
    bool late;          /* measured, but it ended before its event was recorded */
    bool moved;         /* the time of its event is not the driver's */
    bool replaced;      /* what runs on was charged instead of its work_ns */
    bool shared;        /* it may have waited for work of other streams */
    bool siblings;      /* or of other processes of the container */
    bool apart;         /* empty: an event right behind another */
    bool extended;      /* in an extended time slice, after one of the others' at most */
    uint16_t part;      /* of the device's time, in 1,000, while other containers worked; 0: all */
    uint16_t likely;    /* what the others likely left; 0: as `part` */
    uint64_t others_ns; /* for which it may have waited for the others' time slices */
};

struct timing_event {
    void *handle;
    uint64_t asked_ns;    /* before the driver was called to record it: not reached sooner */
    uint64_t recorded_ns; /* when the driver returned */
    struct meter_interval before; /* the interval that it ends */
};

struct stream_meter {
    struct timing_event events[METER_EVENTS]; /* outstanding, a ring */
    uint32_t first, count;
    uint32_t unknown;           /* events outstanding behind launches of unknown duration */
    struct meter_interval open; /* since the last event */
    bool started;               /* an event was reached: its time is known */
    bool moved;                 /* and is not the driver's */
    uint64_t reached_ns;        /* when the last event was reached */
    uint64_t former_ns;         /* when that event was recorded */
    uint64_t done_ns;        /* when the device had finished with it, if it had only events to do */
    uint64_t occupied_to_ns; /* the running interval is charged up to here */
    uint64_t occupied_ns;    /* with this */
    bool occupied_in_part;   /* while other containers worked */
    struct closed_times *closed; /* of the channel gate; NULL: never closed */
    uint64_t sure_wall_ns;       /* recent intervals that never ran dry: how long they took, */
    uint64_t sure_work_ns;       /* and the estimates of their launches */
    uint64_t longer_ns;          /* by which intervals exceeded their estimates, in all */
    uint32_t event_ns;           /* device time of an event, in nanoseconds; 0: not known yet */
    bool event_sure;             /* measured while the processor was faster */
};

/* What is charged for an interval: `busy_ns` between two moments, instead of the `work_ns` that its
 * launches were charged with when they were admitted. */
struct meter_charge {
    uint64_t from_ns, to_ns;
    uint64_t busy_ns;
    uint64_t work_ns;
    uint32_t launches; /* in the interval */
    bool measured;     /* it was one launch, measured */
    bool cut;          /* its launch is cut into time slices whenever others work, */
    bool known;        /* and its duration alone is known */
};

/* Device time of an event, in nanoseconds, which is also what a pair of events adds to one kernel:
 * 0.9 to 1.3 us on five H100s, 2.9 to 3.0 on two, 2.0 to 2.3 on H200s (driver 580.159.04; kernels
 * of 3 to 50 us). It depends on the machine and is learnt from events that follow each other at
 * once: 2.1 us until then, never below the time in which the processor records one, nor above 10
 * us, which was a pause. */
#define METER_EVENT_NS 2100u
#define METER_EVENT_LEAST_NS 1250u
#define METER_EVENT_MOST_NS 10000u
/* The device learns of an event in the last fifth of the driver's call to record it: what finds
 * cold caches, and makes the call take 5 us instead of 0.6, mostly comes before. */
#define METER_TOLD_PART 5u
/* Nanoseconds that a kernel on an idle device costs beyond its time in a row of its like: NVML's
 * utilisation counts 0.5 to 0.8 us more. Less would exceed the limit, more would be lost
 * (docs/decisions/0016). */
#define METER_BEGIN_NS 600u

/* Launches went onto the stream since the last event, the first of them at `first_ns`. */
static inline void meter_note(struct stream_meter *meter, uint32_t launches, uint64_t work_ns,
    uint64_t key, uint64_t first_ns)
{
    if (!meter->open.launches || first_ns < meter->open.first_ns)
        meter->open.first_ns = first_ns;
    meter->open.launches += launches;
    meter->open.work_ns += work_ns;
    meter->open.key = key;
}

static inline bool meter_is_full(const struct stream_meter *meter)
{
    return meter->count == METER_EVENTS;
}

/* When the last event was recorded; 0: none was. */
static inline uint64_t meter_recorded_ns(const struct stream_meter *meter)
{
    const struct timing_event *last =
        &meter->events[(meter->first + meter->count - 1) % METER_EVENTS];
    return meter->count ? last->recorded_ns : meter->former_ns;
}

/* What was known of the interval that an event ends when the event was recorded. */
struct meter_run {
    uint64_t gap_ns;
    bool continuous; /* the event before it was still outstanding */
    bool measured;
    bool apart; /* the event before it was recorded a moment ago, and nothing since */
    bool shared, siblings;
    uint16_t part;        /* in 1,000; 0 as 1,000: no other container works */
    uint16_t likely;      /* in 1,000; 0 as `part` */
    uint64_t others_ns;   /* for which it may wait for the others' time slices */
    uint64_t asked_ns;    /* before the event was recorded; 0: as recorded */
    uint64_t launched_ns; /* after the launch, where it is measured on an idle stream */
};

/* Nanoseconds. If a thread does not run for this long between a launch and its event, the event
 * says only that the launch took no longer. Recording takes 5 us at most. */
#define METER_LATE_NS 100000u

/* An event was recorded behind what was noted. Not with a full meter. */
void meter_add_event(
    struct stream_meter *meter, void *handle, uint64_t recorded_ns, const struct meter_run *run);

/* How much of the time between the two the channel gate was open. */
uint64_t meter_open_between(const struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns);

/* All events that were reached were reached this much sooner. */
void meter_sooner(struct stream_meter *meter, uint64_t ns);

/* The first outstanding event, or NULL. */
struct timing_event *meter_front(struct stream_meter *meter);

/* The earliest begin of the front interval. There must be one. */
uint64_t meter_front_since_ns(const struct stream_meter *meter);

/* Whether there is a front interval, of launches only; how long it may have run without being
 * charged. */
bool meter_front_works(const struct stream_meter *meter);
uint64_t meter_front_running_ns(const struct stream_meter *meter, uint64_t now_ns);

/* Other containers turned out to have worked meanwhile, after the event was recorded: `part` and
 * what follows as in struct meter_run. */
void meter_front_beside(
    struct stream_meter *meter, uint16_t part, uint16_t likely, uint64_t others_ns);

/* Since `since_ns` the container's time slices are extended to `slice_ns`: to be called for the
 * front interval when its end is known, before meter_pass. */
void meter_front_extended(
    struct stream_meter *meter, uint64_t since_ns, uint64_t slice_ns, uint64_t at_ns);

/* The front event was reached at `at_ns`. Takes it out and says what its interval costs; learns the
 * duration of a single launch. Returns the event's handle. */
void *meter_pass(struct stream_meter *meter, uint64_t at_ns, struct meter_charge *ret_charge);

/* Takes the front event out, and charges nothing for its interval; returns its handle. */
void *meter_forget(struct stream_meter *meter);

/* The front interval has exceeded its estimate and runs still: what is charged for it up to
 * `now_ns`, `part` being the container's of the device's time in 1,000. The estimate is given back,
 * except if the interval may be waiting for other streams: then at its end. False if nothing is
 * charged. */
bool meter_run_on(
    struct stream_meter *meter, uint64_t now_ns, unsigned part, struct meter_charge *ret_charge);

/* The launches behind the last event, none of which is outstanding, ran without a pause between the
 * two moments, except if the interval holds something else for which they may wait: what is charged
 * for that. False if nothing is. */
bool meter_ran(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct meter_charge *ret_charge);

/* The launches behind the last event, none of which is outstanding, were made since `from_ns`, have
 * estimates of `work_ns` in all, and are over: what is charged before another event measures them.
 * False if nothing is. */
bool meter_done(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, uint64_t work_ns,
    struct meter_charge *ret_charge);

/* No event will be recorded behind what was noted last: the stream or its thread is gone. Returns
 * what of the launches' estimates meter_ran or meter_done charged a second time. */
uint64_t meter_give_up(struct stream_meter *meter);

/* Whether the front interval has run for `least_ns`: one kernel, or a graph, that no launch gate
 * could have stopped. */
bool meter_runs_for(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns);

/* Nanoseconds until the front interval has run for `least_ns`, if that is expected: its estimate
 * says so, it has exceeded its estimate, or a launch of unknown duration is on its way. Else
 * UINT64_MAX. */
uint64_t meter_long_in_ns(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns);

/* Whether something is on its way: events, or launches behind the last one for which a full meter
 * has no event, for as long as their estimates last. */
bool meter_is_on_way(const struct stream_meter *meter, uint64_t now_ns);

/* What the launches on their way were charged with and have not run yet. */
uint64_t meter_left_ns(const struct stream_meter *meter, uint64_t now_ns);

#endif
