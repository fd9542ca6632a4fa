/* SPDX-License-Identifier: Apache-2.0 */
/* A stream meter: a row of timing events, and between two of them an interval of launches. A timing
 * event is an event that the driver puts its time on; what an interval kept the GPU busy for
 * follows from the times of the timing events at its ends:
 *
 * - launches alone, and the stream never ran dry: from end to end;
 * - one launch alone, put onto an idle stream: from end to end, less what the timing events add and
 *   what the device waited for the launch after it was done with the timing event before it;
 * - otherwise (the stream may have run dry, or waited, or copied): the sum of the launches' learnt
 *   durations, at most from end to end. What such sums miss (the pauses between kernels, fills,
 *   small copies, what an event adds) is known from the intervals that never ran dry.
 *
 * Time in which the channel gate was closed is nobody's. While other containers are at work the
 * time between two timing events is theirs too: then the sums count, but not less than half of our
 * part of that time without one time slice of theirs, and for what nobody knows our part.
 *
 * Pure: no driver, no clock. The caller's lock guards a meter. Times are nanoseconds of
 * CLOCK_MONOTONIC. */
#ifndef VGPU_COMPUTE_METER_H
#define VGPU_COMPUTE_METER_H

#include "compute/closed.h"

#include <stdbool.h>
#include <stdint.h>

#define METER_EVENTS 256u

struct meter_interval {
    uint64_t work_ns;  /* the launches' learnt durations, as they were charged */
    uint64_t gap_ns;   /* from the timing event before to the launch, where the stream was idle */
    uint64_t key;      /* of its last launch (compute/durations.h) */
    uint64_t first_ns; /* when its first launch was made, by the processor's clock */
    uint32_t launches;
    bool other;      /* something else than a kernel is in it, which may take long */
    bool continuous; /* the timing event before it was outstanding when its own was recorded */
    bool measured;   /* one launch, right behind the timing event before it */
    bool late;       /* measured, but its timing event was not there yet when it was over */
    bool moved;      /* the time of its timing event is not the event's own */
    bool replaced;   /* what runs on was charged in the place of its work_ns */
    bool shared;     /* other streams had work on their way: it may have waited for theirs */
    bool siblings;   /* or other processes of the container */
    bool apart;      /* nothing is in it: an event right behind another */
    bool extended;   /* our time slices are extended: it took one, and at most one of the others'
                        before */
    uint16_t part; /* ours of the device's time, in 1,000, while other containers worked; 0: all */
    uint16_t likely;    /* what they likely left of it; 0: as `part` */
    uint64_t others_ns; /* for which it may have waited for their time slices */
};

struct timing_event {
    void *handle;
    uint64_t asked_ns;    /* before the driver was asked to record it: it was not reached sooner */
    uint64_t recorded_ns; /* when the driver had */
    struct meter_interval before; /* the interval that ends here */
};

struct stream_meter {
    struct timing_event events[METER_EVENTS]; /* outstanding, a ring */
    uint32_t first, count;
    uint32_t unknown; /* of the timing events: behind launches that nobody knows the duration of */
    struct meter_interval open; /* since the last timing event */
    bool started;               /* the time of a timing event is known */
    bool moved;                 /* and was not the event's own */
    uint64_t reached_ns;        /* of the last timing event that was reached */
    uint64_t former_ns;         /* when that timing event was recorded */
    uint64_t done_ns; /* when the device was done with it, had it nothing but timing events to do */
    uint64_t occupied_to_ns;     /* the running interval was charged up to here already */
    uint64_t occupied_ns;        /* by how much of it */
    bool occupied_in_part;       /* while other containers were at work too */
    struct closed_times *closed; /* when nothing of ours ran; NULL: never */
    uint64_t sure_wall_ns;       /* of late, intervals that never ran dry: how long they took, */
    uint64_t sure_work_ns;       /* and what their launches were thought to take */
    uint64_t longer_ns;          /* what intervals took longer than was thought, in all */
    uint32_t event_ns;           /* what an event takes on this device; 0: not known yet */
    bool event_sure;             /* no processor was slower meanwhile */
};

/* What is to be charged for an interval: `busy_ns` between two moments, in the place of `work_ns`
 * that its launches were charged with when they were admitted. */
struct meter_charge {
    uint64_t from_ns, to_ns;
    uint64_t busy_ns;
    uint64_t work_ns;
    uint32_t launches; /* that ended with it, */
    bool measured;     /* and was by itself */
    bool cut;          /* its launch is cut in time slices whenever others are at work, */
    bool known;        /* and it is known what it takes alone */
};

/* What an event takes on the device, which is what a pair of them adds to one kernel, on a stream
 * with a backlog and on an idle one: 0.9 to 1.3 us on five H100s, 2.9 to 3.0 on two, 2.0 to 2.3 on
 * H200s (driver 580.159.04; kernels of 3 to 50 us): a matter of the machine, so that it is learnt
 * from events that follow each other at once. Until then, the second; no less than the last is told
 * from what the processor takes to record one. */
#define METER_EVENT_NS 2100u
#define METER_EVENT_LEAST_NS 1250u
#define METER_EVENT_MOST_NS 10000u
/* The device is told of an event before the driver's call to record it returns, by so small a part
 * of that call: what finds cold caches, and makes it take 5 us and not 0.6, mostly comes before. */
#define METER_TOLD_PART 5u
/* NVML's utilisation counts 0.5 to 0.8 us more than a kernel takes in a row of its like, where the
 * device was idle before it. What is charged too little is a limit that does not hold, what is
 * charged too much is lost (docs/decisions/0016). */
#define METER_BEGIN_NS 600u

/* Launches went onto the stream since the last timing event, the first of them at `first_ns`. */
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

/* When the last timing event was recorded; 0: none was. */
static inline uint64_t meter_recorded_ns(const struct stream_meter *meter)
{
    const struct timing_event *last =
        &meter->events[(meter->first + meter->count - 1) % METER_EVENTS];
    return meter->count ? last->recorded_ns : meter->former_ns;
}

/* How the interval that a timing event ends ran, as far as it was known when the timing event was
 * recorded. */
struct meter_run {
    uint64_t gap_ns;
    bool continuous; /* the timing event before it was still outstanding then */
    bool measured;
    bool apart; /* the timing event before it was recorded a moment ago, and nothing since */
    bool shared, siblings;
    uint16_t part;        /* in 1,000; 0 as 1,000: nobody else works */
    uint16_t likely;      /* in 1,000; 0 as part */
    uint64_t others_ns;   /* what is ours may wait so long for the others' time slices */
    uint64_t asked_ns;    /* before the timing event was recorded; 0: as recorded */
    uint64_t launched_ns; /* the launch had been made, where it is measured on an idle stream */
};

/* A thread that was kept from running between a launch and its timing event says little on how long
 * the launch took, only that it was no longer: the timing event was not there yet when it was
 * over. */
#define METER_LATE_NS 100000u

/* A timing event was recorded behind what was noted. Not with a full meter. */
void meter_add_event(
    struct stream_meter *meter, void *handle, uint64_t recorded_ns, const struct meter_run *run);

/* How much of the time between the two the device was open to us. */
uint64_t meter_open_between(const struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns);

/* The timing events that were reached were reached so much sooner. */
void meter_sooner(struct stream_meter *meter, uint64_t ns);

/* The first timing event outstanding, NULL where there is none. */
struct timing_event *meter_front(struct stream_meter *meter);

/* From when on the front interval may have run. Not without one. */
uint64_t meter_front_since_ns(const struct stream_meter *meter);

/* Whether there is a front interval, of launches and nothing else; for how long it may have run,
 * and is not charged for yet. */
bool meter_front_works(const struct stream_meter *meter);
uint64_t meter_front_running_ns(const struct stream_meter *meter, uint64_t now_ns);

/* Others turned out to have been at work meanwhile, who were not when its timing event was
 * recorded: `part` and what follows as in struct meter_run. */
void meter_front_beside(
    struct stream_meter *meter, uint16_t part, uint16_t likely, uint64_t others_ns);

/* Since `since_ns` our time slices are so long that what takes less than `slice_ns` is not cut: to
 * be said of the front interval once its end is known, and before it is passed. */
void meter_front_extended(
    struct stream_meter *meter, uint64_t since_ns, uint64_t slice_ns, uint64_t at_ns);

/* The front timing event was reached at `at_ns`. Takes it out and says what its interval costs;
 * learns the duration of a launch that was alone. Returns the timing event's handle. */
void *meter_pass(struct stream_meter *meter, uint64_t at_ns, struct meter_charge *ret_charge);

/* Takes the front timing event out without a word on what its interval took; returns its event. */
void *meter_forget(struct stream_meter *meter);

/* The front interval runs still, longer than its estimate: what is to be charged for up to `now_ns`
 * before its end is known, `part` being ours of the device's time in 1,000. Its estimate is given
 * back, but where it may be waiting for other streams' work: then not before its end. False where
 * nothing is to be charged. */
bool meter_run_on(
    struct stream_meter *meter, uint64_t now_ns, unsigned part, struct meter_charge *ret_charge);

/* The launches behind the last timing event, none of which is outstanding, are known to have run
 * without a pause between the two, unless something else is in their interval for which they may
 * wait: what is to be charged for that. False where nothing is. */
bool meter_ran(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct meter_charge *ret_charge);

/* The launches behind the last timing event, none of which is outstanding, were made since
 * `from_ns`, are thought to take `work_ns`, and are over: what is to be charged before another
 * timing event says what they took. False where nothing is. */
bool meter_done(struct stream_meter *meter, uint64_t from_ns, uint64_t to_ns, uint64_t work_ns,
    struct meter_charge *ret_charge);

/* No timing event will ever be recorded behind what was noted last: its stream, or the thread whose
 * own it was, is gone. Returns how much of what its launches were charged with when they were
 * admitted was charged a second time by meter_ran or meter_done. */
uint64_t meter_give_up(struct stream_meter *meter);

/* Whether the front interval has run for at least so long: one kernel, or a graph, that no launch
 * gate could have stopped. */
bool meter_runs_for(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns);

/* How long until the front interval has run for `least_ns`, where that is to be looked for: it is
 * thought to run for so long, runs longer than it was thought to, or nobody knows what is on its
 * way. UINT64_MAX else. */
uint64_t meter_long_in_ns(const struct stream_meter *meter, uint64_t now_ns, uint64_t least_ns);

/* Whether something is on its way: timing events, or launches behind the last one that a full meter
 * has no timing event for, for as long as they are thought to take. */
bool meter_is_on_way(const struct stream_meter *meter, uint64_t now_ns);

/* What the launches on their way were charged with and have not run yet. */
uint64_t meter_left_ns(const struct stream_meter *meter, uint64_t now_ns);

#endif
