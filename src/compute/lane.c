/* SPDX-License-Identifier: Apache-2.0 */
/* Marks, stretches and what they cost. */
#include "compute/lane.h"

#include "compute/durations.h"

#include <stddef.h>

/* What runs this much longer than was thought is charged as it goes. */
#define RUN_ON_NS 2000000ull
/* Of what was stopped in between, no less teaches anything. */
#define CLOSURE_LEARN_NS 10000000ull
/* Containers take turns of up to 16 ms. */
#define MANY_TURNS_NS 40000000ull

/* Sums of learnt durations are set right by what was seen of late: so much work is kept in mind,
 * half of it forgotten at a time, and this much stands for "they are right" where nothing was seen.
 */
#define SURE_WORK_NS 64000000ull
#define SURE_PRIOR_NS 2000000ull
/* Two changes of group take longer: who met others' turns took more than so much beyond his own
 * time (185 us each; H200, driver 580.159.04). */
#define CLEAN_NS 100000ull

/* What takes longer meets others' turns each time it runs. */
#define EXCEEDED_MOST_NS 5000000ull
/* What takes less is found between two changes often enough. */
#define BLURRED_NS 1000000ull
/* And those of the container's other processes, which the driver gives 2 ms. */
#define EXCEEDED_SIBLINGS_NS 1500000ull

/* Of one launch, or two, chance and the marks' own time say too much. */
#define SURE_LAUNCHES 4
/* A stretch that took longer than this share of its sum met something else. */
#define SURE_PERCENT_MAX 130
#define SURE_PERCENT_MIN 80

static bool is_unknown(const struct lane_stretch *stretch)
{
    return stretch->launches && !stretch->work_ns;
}

static void set_part(
    struct lane_stretch *stretch, uint16_t part, uint16_t likely, uint64_t others_ns)
{
    stretch->part = part;
    stretch->likely = likely > part ? likely : part;
    stretch->others_ns = others_ns;
}

void lane_mark(struct lane *lane, void *event, uint64_t recorded_ns, const struct lane_run *run)
{
    struct lane_mark *mark = &lane->marks[(lane->first + lane->count) % LANE_MARKS];
    uint64_t asked = run->asked_ns ? run->asked_ns : recorded_ns;
    *mark = (struct lane_mark){event, asked, recorded_ns, lane->open};
    mark->before.continuous = run->continuous;
    mark->before.measured = run->measured;
    mark->before.late = run->launched_ns && recorded_ns > run->launched_ns + LANE_LATE_NS;
    mark->before.shared = run->shared;
    mark->before.siblings = run->siblings;
    mark->before.apart = run->apart && !mark->before.launches && !mark->before.other;
    set_part(&mark->before, run->part, run->likely, run->others_ns);
    mark->before.gap_ns = run->gap_ns;
    lane->count++;
    lane->unknown += is_unknown(&mark->before);
    lane->open = (struct lane_stretch){0};
}

struct lane_mark *lane_front(struct lane *lane)
{
    return lane->count ? &lane->marks[lane->first] : NULL;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static uint64_t above(uint64_t value, uint64_t floor)
{
    return value > floor ? value - floor : 0;
}

uint64_t lane_open_between(const struct lane *lane, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t wall = above(to_ns, from_ns);
    return above(wall, closed_between(lane->closed, from_ns, to_ns));
}

void lane_sooner(struct lane *lane, uint64_t ns)
{
    lane->reached_ns = above(lane->reached_ns, ns);
}

/* What an event takes, which is what a pair of them adds to a launch between them. */
static uint64_t event_ns(const struct lane *lane)
{
    return lane->event_ns ? lane->event_ns : LANE_EVENT_NS;
}

/* When the device is done with the mark, had it nothing to do but such: by the processor's clock,
 * and so much sooner than it really is as it takes to tell the device of anything. */
static uint64_t done_with_ns(const struct lane *lane, const struct lane_mark *mark)
{
    uint64_t call = above(mark->recorded_ns, mark->asked_ns);
    uint64_t told = mark->recorded_ns - call / LANE_TOLD_PART;
    return (lane->done_ns > told ? lane->done_ns : told) + event_ns(lane);
}

/* For how long the device waited for the launch of the stretch, with an idle stream: it was busy
 * with the marks before it while the processor came to the launch. */
static uint64_t idle_ns(const struct lane *lane, const struct lane_stretch *stretch)
{
    uint64_t behind = above(lane->done_ns, lane->former_ns);
    return stretch->continuous ? 0 : above(stretch->gap_ns, behind);
}

/* How long a launch took that was put onto an idle stream, and that the device waited for so long,
 * from the end of the mark before it. */
static uint64_t alone_ns(const struct lane *lane, uint64_t wall_ns, uint64_t waited_ns)
{
    return above(wall_ns + LANE_BEGIN_NS, waited_ns + event_ns(lane));
}

/* Two events right behind each other. Where the processor took about as long to record the second,
 * the device may have waited for that: an event takes no longer. */
static void learn_event(struct lane *lane, uint64_t wall_ns, uint64_t gap_ns)
{
    bool sure = wall_ns > 2 * gap_ns;
    uint64_t took = wall_ns > LANE_EVENT_LEAST_NS ? wall_ns : LANE_EVENT_LEAST_NS;
    int64_t known = lane->event_ns;
    if (took > LANE_EVENT_MOST_NS)
        return;
    if (sure && !lane->event_sure)
        lane->event_ns = (uint32_t)took;
    else if (!known)
        lane->event_ns = LANE_EVENT_LEAST_NS;
    else if (sure || (int64_t)took < known)
        lane->event_ns = (uint32_t)(known + ((int64_t)took - known) / 8);
    lane->event_sure |= sure;
}

static bool is_in_part(const struct lane_stretch *stretch)
{
    return stretch->part && stretch->part < 1000;
}

uint64_t lane_front_since_ns(const struct lane *lane)
{
    const struct lane_stretch *stretch = &lane->marks[lane->first].before;
    bool behind = stretch->continuous || stretch->first_ns < lane->reached_ns;
    return behind ? lane->reached_ns : stretch->first_ns;
}

bool lane_front_works(const struct lane *lane)
{
    const struct lane_stretch *front = &lane->marks[lane->first].before;
    return lane->count && front->launches && !front->other;
}

uint64_t lane_front_running_ns(const struct lane *lane, uint64_t now_ns)
{
    return above(lane_open_between(lane, lane_front_since_ns(lane), now_ns), lane->occupied_ns);
}

void lane_front_beside(struct lane *lane, uint16_t part, uint16_t likely, uint64_t others_ns)
{
    struct lane_stretch *stretch = &lane->marks[lane->first].before;
    if (!is_in_part(stretch) && part < 1000)
        set_part(stretch, part, likely, others_ns);
}

void lane_front_whole(struct lane *lane, uint64_t since_ns, uint64_t turn_ns, uint64_t at_ns)
{
    uint64_t from = lane->reached_ns;
    lane->marks[lane->first].before.whole =
        lane->started && from >= since_ns && at_ns < from + turn_ns;
}

/* Others' work may have come before its own. */
static bool may_have_waited(const struct lane_stretch *stretch)
{
    return stretch->shared || stretch->siblings;
}

static uint64_t part_of(uint64_t wall_ns, unsigned part)
{
    return wall_ns / 1000 * part;
}

/* The stretch never ran dry, and nothing but its launches was on the device. */
static void compare(struct lane *lane, const struct lane_stretch *stretch, uint64_t wall_ns)
{
    if (!stretch->continuous || stretch->other || may_have_waited(stretch) || is_in_part(stretch) ||
        stretch->replaced || stretch->launches < SURE_LAUNCHES || !stretch->work_ns)
        return;
    uint64_t percent = wall_ns / (stretch->work_ns / 100 + 1);
    if (percent < SURE_PERCENT_MIN || percent > SURE_PERCENT_MAX)
        return;
    if (lane->sure_work_ns >= SURE_WORK_NS) {
        lane->sure_work_ns /= 2;
        lane->sure_wall_ns /= 2;
    }
    lane->sure_work_ns += stretch->work_ns;
    lane->sure_wall_ns += wall_ns;
}

/* What launches really take that are thought to take `work_ns`. */
static uint64_t set_right(const struct lane *lane, uint64_t work_ns)
{
    double wall = (double)(lane->sure_wall_ns + SURE_PRIOR_NS);
    return (uint64_t)((double)work_ns * wall / (double)(lane->sure_work_ns + SURE_PRIOR_NS));
}

/* What was surely ours of a time in which other containers were at work, too: it may have begun
 * with their turns. */
static uint64_t least_of(const struct lane_stretch *stretch, uint64_t wall_ns)
{
    return is_in_part(stretch) ? part_of(above(wall_ns, stretch->others_ns), stretch->part)
                               : wall_ns;
}

/* What took many turns may have been learnt in turns as well: it is no more than what the others
 * left. */
static uint64_t own_part(const struct lane_stretch *stretch, uint64_t wall_ns, uint64_t work_ns)
{
    uint64_t least = least_of(stretch, wall_ns) / 2, most = part_of(wall_ns, stretch->likely);
    if (!work_ns)
        return part_of(wall_ns, stretch->part);
    bool sure = stretch->measured && duration_is_alone(stretch->key);
    if (!sure && wall_ns > MANY_TURNS_NS && work_ns > most + most / 4)
        return most + most / 4;
    return work_ns < least ? least : at_most(work_ns, wall_ns);
}

/* What a launch was thought to take when it was let go may be known better by now: a queue of them
 * can be long. By its own measurement, the first, nothing is. */
static uint64_t known_work(const struct lane_stretch *stretch, uint64_t work_ns, bool first)
{
    uint64_t known = stretch->measured && !first ? duration_of(stretch->key) : 0;
    return known ? known : work_ns;
}

/* The stretch of `mark` began at `from_ns` and was over at `to_ns`; `first`: before it nothing was
 * known of its launch. */
static uint64_t busy_of(const struct lane *lane, const struct lane_mark *mark, uint64_t from_ns,
    uint64_t to_ns, bool first)
{
    const struct lane_stretch *stretch = &mark->before;
    uint64_t wall = lane_open_between(lane, from_ns, to_ns),
             work = set_right(lane, stretch->work_ns);
    if (!stretch->launches)
        return 0;
    if (stretch->other)
        return at_most(work, wall);
    bool measured = stretch->measured && !stretch->late;
    /* Beside others the mark before it may have waited for our turn: no gap passed then. */
    if (measured && !stretch->continuous)
        wall = alone_ns(lane, wall, is_in_part(stretch) ? 0 : idle_ns(lane, stretch));
    if (stretch->continuous || measured)
        return is_in_part(stretch) ? own_part(stretch, wall, known_work(stretch, work, first))
                                   : wall;
    /* After the last launch it ran through. */
    uint64_t sure = lane_open_between(lane, mark->recorded_ns, to_ns);
    if (is_in_part(stretch))
        sure = own_part(stretch, sure, at_most(work, sure));
    return at_most(work > sure ? work : sure, wall);
}

/* While others are at work, containers or processes: no turn of theirs came between what took
 * hardly longer than is known. On an idle stream the mark before the launch may have waited for our
 * turn, and the launch come up with it: how much of the gap passed before it ran is not known, so
 * that it took from `least_ns` to `most_ns`. */
static void learn_in_part(
    const struct lane_stretch *stretch, uint64_t known, uint64_t least_ns, uint64_t most_ns)
{
    bool doubtful = stretch->shared || stretch->late;
    uint64_t exceeded_most = is_in_part(stretch) ? EXCEEDED_MOST_NS : EXCEEDED_SIBLINGS_NS;
    if (!doubtful && is_in_part(stretch) && duration_is_alone(stretch->key))
        duration_doubt(stretch->key, least_of(stretch, most_ns) > known + known / 8);
    if (most_ns < known / 4 * 3)
        duration_shorten(stretch->key, most_ns > known / 2 ? most_ns : known / 2);
    else if (most_ns < known)
        duration_learn(stretch->key, most_ns);
    else if (least_ns <= known)
        duration_learn(stretch->key, known);
    else if (doubtful || least_ns > exceeded_most)
        duration_confirm(stretch->key);
    else if (least_ns < known + at_most(known / 4, CLEAN_NS))
        duration_learn(stretch->key, least_ns);
    else
        duration_exceeded(stretch->key, least_ns);
}

/* One launch that others' turns cut whenever they are at work. */
static bool is_cut(const struct lane_stretch *stretch)
{
    return stretch->measured && !stretch->other && stretch->launches == 1 && is_in_part(stretch) &&
           !may_have_waited(stretch) && duration_of(stretch->key) >= BLURRED_NS;
}

/* From one launch alone, which took `wall_ns` from mark to mark. Where it may have waited for other
 * streams' work, or its mark came late, that says only that it takes no longer. */
static void learn(const struct lane *lane, const struct lane_stretch *stretch, uint64_t wall_ns)
{
    if (!stretch->measured || stretch->other || stretch->launches != 1)
        return;
    bool beside = is_in_part(stretch) || stretch->siblings;
    uint64_t known = duration_of(stretch->key);
    uint64_t most =
        stretch->continuous ? above(wall_ns, event_ns(lane)) : alone_ns(lane, wall_ns, 0);
    uint64_t took = above(most, idle_ns(lane, stretch));
    if (beside && (stretch->moved || lane->moved))
        /* What is too short would be kept for as long as others are at work. */
        duration_confirm(stretch->key);
    else if (!known && beside)
        duration_learn(stretch->key, stretch->late || stretch->gap_ns > LANE_LATE_NS ? most : took);
    else if (!known)
        duration_learn_alone(stretch->key, took);
    else if (beside && stretch->whole && !may_have_waited(stretch) && most >= BLURRED_NS)
        duration_whole(stretch->key, most);
    else if (beside)
        learn_in_part(stretch, known, took, most);
    else if (took < known || !(stretch->shared || stretch->late))
        duration_learn_alone(stretch->key, took);
    else
        duration_confirm(stretch->key);
}

/* From one launch that went by its estimate onto a stream where nothing was, alone: it took no
 * longer than from the launch to its mark, and ran at least since that was recorded, if that was
 * while it was thought to run. */
static void learn_dry(
    const struct lane *lane, const struct lane_mark *mark, uint64_t from_ns, uint64_t to_ns)
{
    const struct lane_stretch *stretch = &mark->before;
    bool doubtful = stretch->other || stretch->shared || stretch->siblings || stretch->moved ||
                    is_in_part(stretch);
    uint64_t known = duration_of(stretch->key), most = above(to_ns, stretch->first_ns),
             least = above(to_ns, mark->recorded_ns + event_ns(lane));
    bool dry = !stretch->continuous && !stretch->measured && stretch->first_ns > from_ns;
    if (!known || !dry || stretch->launches != 1 || doubtful)
        return;
    if (most < known)
        duration_learn_alone(stretch->key, most);
    else if (least > known && mark->recorded_ns < stretch->first_ns + known)
        duration_learn_alone(stretch->key, least);
    else
        duration_confirm(stretch->key);
}

void *lane_forget(struct lane *lane)
{
    void *event = lane->marks[lane->first].event;
    lane->unknown -= is_unknown(&lane->marks[lane->first].before);
    lane->occupied_to_ns = lane->occupied_ns = 0;
    lane->occupied_in_part = false;
    lane->first = (lane->first + 1) % LANE_MARKS;
    lane->count--;
    return event;
}

/* Where the stream may have run dry, nothing ran before the first launch. A mark on an idle stream
 * is reached late where the device has to turn to this process first: that time is ours. */
static uint64_t begin_of(
    const struct lane *lane, const struct lane_stretch *stretch, uint64_t from_ns, uint64_t to_ns)
{
    if (stretch->measured && !stretch->continuous && may_have_waited(stretch))
        return at_most(lane->former_ns, from_ns);
    if (stretch->continuous || stretch->measured || stretch->first_ns < from_ns)
        return from_ns;
    return at_most(stretch->first_ns, to_ns);
}

/* What was charged as it went, beside others, ran on from there to its mark. Of a stream that may
 * have run dry since, only what came behind the recording of the mark is sure. */
static uint64_t rest_in_part(const struct lane *lane, const struct lane_mark *mark,
    uint64_t from_ns, uint64_t to_ns, uint64_t thought_ns)
{
    const struct lane_stretch *stretch = &mark->before;
    bool dry = !stretch->continuous && !stretch->measured;
    uint64_t sure_ns = dry && mark->recorded_ns > from_ns ? mark->recorded_ns : from_ns;
    uint64_t rest = lane_open_between(lane, sure_ns, to_ns);
    if (is_in_part(stretch))
        rest = part_of(rest, stretch->part);
    return dry && rest < thought_ns ? thought_ns : rest;
}

/* What a stretch took beyond what was thought; between two that never ran dry lie marks and pauses.
 */
static uint64_t longer_by(const struct lane_stretch *stretch, uint64_t busy_ns)
{
    uint64_t longer = above(busy_ns, stretch->work_ns);
    return stretch->continuous && longer < stretch->work_ns / 2 ? 0 : longer;
}

/* Of the stretch, `rest_ns` is to be charged still, which does not fit behind what was charged as
 * it went: another thread let it by on the same stream, beside that. */
static bool was_let_by_beside(
    const struct lane *lane, uint64_t rest_ns, uint64_t from_ns, uint64_t at_ns)
{
    return !lane->occupied_in_part && rest_ns > above(at_ns, lane->occupied_to_ns) &&
           lane->occupied_ns < above(lane->occupied_to_ns, from_ns) / 2;
}

void *lane_pass(struct lane *lane, uint64_t at_ns, struct lane_charge *ret_charge)
{
    struct lane_mark *mark = &lane->marks[lane->first];
    const struct lane_stretch *stretch = &mark->before;
    uint64_t from = lane->started ? lane->reached_ns : at_ns;
    bool cut = false, first = !duration_of(stretch->key);
    if (at_ns < from)
        at_ns = from;
    if (lane->started) {
        uint64_t open = lane_open_between(lane, from, at_ns);
        /* Where a closure begins and ends is known to some 0.1 ms, and later than that where the
         * governor was kept from running: beside others, what is too short would stay,
         * but anything is better than nothing. */
        if (open == at_ns - from || (open >= CLOSURE_LEARN_NS && (first || !is_in_part(stretch))))
            learn(lane, stretch, open);
        if (open == at_ns - from) {
            learn_dry(lane, mark, from, at_ns);
            compare(lane, stretch, open);
        }
        if (stretch->apart)
            learn_event(lane, open, mark->recorded_ns - lane->former_ns);
        cut = is_cut(stretch);
        from = begin_of(lane, stretch, from, at_ns);
    }
    uint64_t busy = busy_of(lane, mark, from, at_ns, first);
    *ret_charge = (struct lane_charge){.from_ns = from, .to_ns = at_ns, .busy_ns = busy};
    ret_charge->launches = stretch->launches;
    ret_charge->measured = stretch->measured;
    ret_charge->cut = cut;
    ret_charge->known = duration_is_alone(stretch->key);
    ret_charge->work_ns = stretch->replaced ? 0 : stretch->work_ns;
    lane->longer_ns += longer_by(stretch, busy);
    if (lane->occupied_to_ns) {
        uint64_t rest = above(busy, lane->occupied_ns);
        if (lane->occupied_to_ns > from && !was_let_by_beside(lane, rest, from, at_ns))
            ret_charge->from_ns = at_most(lane->occupied_to_ns, at_ns);
        ret_charge->busy_ns = rest;
        if (lane->occupied_in_part && !stretch->other)
            ret_charge->busy_ns =
                rest_in_part(lane, mark, ret_charge->from_ns, at_ns, ret_charge->busy_ns);
    }
    lane->started = true;
    lane->moved = stretch->moved;
    lane->reached_ns = at_ns;
    lane->former_ns = mark->recorded_ns;
    lane->done_ns = done_with_ns(lane, mark);
    return lane_forget(lane);
}

/* From when on the front stretch is known to run without a pause. */
static uint64_t began_ns(const struct lane *lane, const struct lane_mark *mark)
{
    bool dry = !mark->before.continuous && (!mark->before.measured || mark->before.late);
    return dry && mark->recorded_ns > lane->reached_ns ? mark->recorded_ns : lane->reached_ns;
}

/* How long the front stretch has run so far, at least; 0 where that is not known, or nothing runs.
 */
static uint64_t run_ns(const struct lane *lane, uint64_t now_ns)
{
    const struct lane_mark *mark = lane->count ? &lane->marks[lane->first] : NULL;
    if (!mark || !lane->started || !mark->before.launches || mark->before.other)
        return 0;
    return least_of(&mark->before, lane_open_between(lane, began_ns(lane, mark), now_ns));
}

bool lane_runs_for(const struct lane *lane, uint64_t now_ns, uint64_t least_ns)
{
    return run_ns(lane, now_ns) >= least_ns;
}

uint64_t lane_long_in_ns(const struct lane *lane, uint64_t now_ns, uint64_t least_ns)
{
    const struct lane_mark *mark = lane->count ? &lane->marks[lane->first] : NULL;
    uint64_t run = run_ns(lane, now_ns);
    bool expected = mark && (mark->before.work_ns >= least_ns ||
                                run > mark->before.work_ns + RUN_ON_NS || lane->unknown);
    return expected ? above(least_ns, run) : UINT64_MAX;
}

bool lane_is_on_way(const struct lane *lane, uint64_t now_ns)
{
    uint64_t from = lane->open.first_ns;
    if (from < lane->reached_ns)
        from = lane->reached_ns;
    return lane->count || (lane->open.launches && now_ns < from + lane->open.work_ns);
}

uint64_t lane_left_ns(const struct lane *lane, uint64_t now_ns)
{
    uint64_t left = 0, run = run_ns(lane, now_ns);
    for (uint32_t i = 0; i < lane->count; i++) {
        const struct lane_stretch *stretch = &lane->marks[(lane->first + i) % LANE_MARKS].before;
        if (!stretch->replaced)
            left += i ? stretch->work_ns : above(stretch->work_ns, run);
    }
    return left;
}

/* Of the running stretch, what was not charged for already. */
static uint64_t unoccupied_from(const struct lane *lane, uint64_t from_ns)
{
    return lane->occupied_to_ns > from_ns ? lane->occupied_to_ns : from_ns;
}

static void occupy_for(struct lane *lane, uint64_t from_ns, uint64_t to_ns, uint64_t busy_ns,
    struct lane_charge *ret_charge)
{
    *ret_charge = (struct lane_charge){.from_ns = from_ns, .to_ns = to_ns, .busy_ns = busy_ns};
    lane->occupied_to_ns = to_ns;
    lane->occupied_ns += busy_ns;
}

/* It is charged as it goes. */
static void occupy(struct lane *lane, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct lane_charge *ret_charge)
{
    uint64_t busy = lane_open_between(lane, from_ns, to_ns);
    if (part < 1000) {
        busy = part_of(busy, part);
        lane->occupied_in_part = true;
    }
    occupy_for(lane, from_ns, to_ns, busy, ret_charge);
}

bool lane_ran(struct lane *lane, uint64_t from_ns, uint64_t to_ns, unsigned part,
    struct lane_charge *ret_charge)
{
    uint64_t from = unoccupied_from(lane, from_ns);
    if (lane->count || lane->open.other || !lane_open_between(lane, from, to_ns))
        return false;
    occupy(lane, from, to_ns, part, ret_charge);
    return true;
}

bool lane_done(struct lane *lane, uint64_t from_ns, uint64_t to_ns, uint64_t work_ns,
    struct lane_charge *ret_charge)
{
    uint64_t most = at_most(work_ns, lane_open_between(lane, from_ns, to_ns));
    uint64_t from = unoccupied_from(lane, from_ns);
    /* Where another thread's was charged up to now already, this one's has no room here. */
    uint64_t busy = at_most(above(most, lane->occupied_ns), lane_open_between(lane, from, to_ns));
    if (lane->count || !busy)
        return false;
    occupy_for(lane, from, to_ns, busy, ret_charge);
    return true;
}

uint64_t lane_give_up(struct lane *lane)
{
    uint64_t charged = lane->count ? 0 : at_most(lane->occupied_ns, lane->open.work_ns);
    lane->open = (struct lane_stretch){0};
    if (!lane->count)
        lane->occupied_to_ns = lane->occupied_ns = 0;
    return charged;
}

bool lane_run_on(struct lane *lane, uint64_t now_ns, unsigned part, struct lane_charge *ret_charge)
{
    struct lane_mark *mark = lane_front(lane);
    if (!mark || !lane_runs_for(lane, now_ns, mark->before.work_ns + RUN_ON_NS))
        return false;
    struct lane_stretch *stretch = &mark->before;
    uint64_t from = unoccupied_from(lane, began_ns(lane, mark));
    if (lane_open_between(lane, from, now_ns) < RUN_ON_NS)
        return false;
    occupy(lane, from, now_ns, part, ret_charge);
    /* What waits for other streams' work has its own still before it. */
    ret_charge->work_ns = stretch->replaced || may_have_waited(stretch) ? 0 : stretch->work_ns;
    stretch->replaced = !may_have_waited(stretch);
    return true;
}
