/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that launch under a limit, and what the governor sees of them. */
#include "pace/thread.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/slab.h"
#include "driver/library.h"
#include "container/container.h"
#include "pace/completions.h"
#include "pace/events.h"
#include "pace/leave.h"
#include "pace/share.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* Nanoseconds. Launches that were admitted by estimate end within this after their estimate, or
 * something runs on. */
#define GRACE_NS 5000000ull

_Thread_local struct pace_thread *thread_mine __attribute__((tls_model("initial-exec")));

static struct lock threads_lock; /* inside meters_lock, never around it */
static struct {
    struct slab slab;
    struct pace_thread *first;
    pthread_key_t ended; /* its destructor runs when the thread ends */
    __typeof__(pthread_setspecific) *set;
} threads GUARDED_BY(threads_lock) = {.slab = {.object_bytes = sizeof(struct pace_thread)}};

/* ---- the owner's ---- */

struct thread_stream *thread_stream_in_group(struct pace_thread *own, CUstream stream)
{
    unsigned first = thread_stream_place(stream);
    struct thread_stream *free = NULL;
    for (unsigned i = 0; i < THREAD_GROUP; i++) {
        struct thread_stream *here = &own->streams[first ^ i];
        if (here->stream == stream)
            return here;
        if (!free && !here->stream)
            free = here;
    }
    return free ? free : &own->streams[first];
}

static void charge_up_to(struct thread_stream *here, uint64_t charged_ns) REQUIRES(meters_lock)
{
    if (charged_ns <= here->charged_ns)
        return;
    share_charge_later((unsigned)here->device, (int64_t)(charged_ns - here->charged_ns));
    here->charged_ns = (uint32_t)charged_ns;
}

void thread_charge(struct thread_stream *here)
{
    const struct meter_record *meter = load_relaxed(&here->meter);
    uint32_t work_ns = load_relaxed(&here->work_ns);
    /* What came before an outstanding event was another interval's. */
    uint64_t seen_ns = meter && !meter->meter.count ? meter->meter.occupied_ns : 0;
    if (seen_ns < work_ns)
        charge_up_to(here, work_ns - seen_ns);
}

/* Notes what was admitted since the last note, by the owner or another thread: the owner may be
 * adding to it now, the time first. A launch that failed after it was noted is charged by what its
 * interval took. */
static void note_estimated(struct thread_stream *here, uint64_t key) REQUIRES(meters_lock)
{
    uint32_t launches = load_acquire(&here->launches), work_ns = load_relaxed(&here->work_ns);
    struct meter_record *meter = load_relaxed(&here->meter);
    if (!meter || launches <= here->noted.launches || work_ns <= here->noted.work_ns)
        return;
    uint32_t more_ns = work_ns - here->noted.work_ns;
    uint64_t first_ns = here->noted.launches ? here->noted.at_ns : load_relaxed(&here->first_ns);
    charge_up_to(here, work_ns);
    if (meters_is_same(meter, load_relaxed(&here->meter_id))) {
        meter_note(&meter->meter, launches - here->noted.launches, more_ns, launches == 1 ? key : 0,
            first_ns);
        meter->opener = meters_thread();
    }
    here->noted = (struct thread_noted){launches, work_ns, clock_now_ns()};
}

void thread_flush(struct thread_stream *here)
{
    note_estimated(here, here->copied ? 0 : here->key);
    here->due_ns -= here->work_ns < here->due_ns ? here->work_ns : here->due_ns;
    here->round.before_ns -= here->work_ns;
    here->noted = (struct thread_noted){0};
    here->charged_ns = 0;
    store_relaxed(&here->launches, 0u);
    store_relaxed(&here->work_ns, 0u);
}

void thread_took_less(struct thread_stream *here, uint32_t less_ns)
{
    LOCKED_TO_END(meters_lock);
    uint32_t work_ns = load_relaxed(&here->work_ns), noted_ns = here->noted.work_ns;
    /* Not if some of it is on a meter already: that may be settled. */
    if (here->round.before_ns >= 0 && work_ns > noted_ns && work_ns - noted_ns > less_ns) {
        work_ns -= less_ns;
        store_relaxed(&here->work_ns, work_ns);
        if (here->charged_ns > work_ns) {
            share_charge_later((unsigned)here->device, -(int64_t)(here->charged_ns - work_ns));
            here->charged_ns = work_ns;
        }
    }
}

/* It was charged at the gate, so that it shows as hardly any work, from its end on. */
void thread_show(struct thread_stream *here, uint64_t work_ns, uint64_t now_ns)
{
    store_relaxed(&here->shown_ns, now_ns);
    store_relaxed(&here->first_ns, now_ns + work_ns);
    store_relaxed(&here->work_ns, 1u);
    store_release(&here->launches, 1u);
}

void thread_hide(struct thread_stream *here)
{
    store_relaxed(&here->launches, here->noted.launches);
    store_relaxed(&here->work_ns, here->noted.work_ns);
    store_relaxed(&here->shown_ns, (uint64_t)0);
    thread_flush(here);
}

void thread_gather(struct meter_record *record)
{
    if (record->thread)
        return;
    LOCKED_TO_END(threads_lock);
    for (struct pace_thread *own = threads.first; own; own = own->next) {
        for (unsigned i = 0; i < THREAD_STREAMS && own != thread_mine; i++) {
            if (load_relaxed(&own->streams[i].meter) == record)
                note_estimated(&own->streams[i], 0);
        }
    }
}

static void gather_own(struct pace_thread *own, CUstream stream) REQUIRES(meters_lock)
{
    for (unsigned i = 0; i < THREAD_STREAMS; i++) {
        const struct meter_record *record = load_relaxed(&own->streams[i].meter);
        if (record && (meters_is_on(record, stream) || meters_is_on(record, CU_STREAM_LEGACY)))
            note_estimated(&own->streams[i], 0);
    }
}

void thread_gather_on(CUstream stream)
{
    LOCKED_TO_END(threads_lock);
    for (struct pace_thread *own = threads.first; own; own = own->next) {
        gather_own(own, stream);
    }
}

static void forget(struct thread_stream *here)
{
    store_relaxed(&here->meter, (struct meter_record *)NULL);
    here->stream = NULL;
    here->due_ns = 0;
    here->waits = false;
    store_relaxed(&here->shown_ns, (uint64_t)0);
}

void thread_flush_all(struct pace_thread *own)
{
    LOCKED_TO_END(meters_lock);
    for (unsigned i = 0; i < THREAD_STREAMS; i++) {
        thread_flush(&own->streams[i]);
        forget(&own->streams[i]);
    }
}

struct meter_record *thread_meter(CUstream stream, struct thread_stream *here)
{
    thread_flush(here);
    struct meter_record *record = meters_of(stream);
    if (here->stream != stream)
        here->quantum_ns = 0;
    if (here->stream != stream || !record || record->id != here->meter_id)
        here->round = (struct thread_round){0};
    forget(here);
    here->stream = stream;
    here->looked_ns = 0;
    if (record) {
        store_relaxed(&here->meter_id, record->id);
        here->device = record->device;
        store_relaxed(&here->meter, record);
    }
    return record;
}

bool thread_record(struct thread_stream *here, CUstream stream, bool dry)
{
    if (!thread_is_current(here, stream) || capture_records(stream, STREAM_ZERO_LEGACY))
        return false;
    struct meter_record *record = here->meter;
    bool open = false, busy = false;
    LOCKED(meters_lock) {
        thread_flush(here);
        if (!dry || record->meter.count > METER_EVENTS / 2)
            (void)completions_poll(record->device);
        open = record->meter.open.launches > 0;
        busy = !dry && record->meter.count > 0;
    }
    if (open)
        events_record(record, here->meter_id, (struct meter_run){.continuous = busy});
    return open;
}

uint32_t thread_random(struct pace_thread *own)
{
    own->random = own->random * 1664525u + 1013904223u;
    return own->random >> 16;
}

/* ---- the list ---- */

static void link_in(struct pace_thread *own) REQUIRES(threads_lock)
{
    own->next = threads.first;
    own->link = &threads.first;
    if (own->next)
        own->next->link = &own->next;
    threads.first = own;
}

static void link_out(struct pace_thread *own) REQUIRES(threads_lock)
{
    *own->link = own->next;
    if (own->next)
        own->next->link = own->link;
}

static void thread_ends(void *argument)
{
    fork_enter(container_reset);
    if (!argument || argument != thread_mine || !meters_are_used())
        return;
    thread_mine = NULL;
    thread_flush_all(argument);
    leave_thread();
    LOCKED_TO_END(threads_lock);
    link_out(argument);
    slab_give(&threads.slab, argument);
}

/* The functions are looked up: linking them would require glibc 2.34. */
static void find_thread_ends(void) REQUIRES(threads_lock)
{
    __typeof__(pthread_key_create) *create =
        (__typeof__(pthread_key_create) *)library_next_function("pthread_key_create");
    __typeof__(pthread_setspecific) *set =
        (__typeof__(pthread_setspecific) *)library_next_function("pthread_setspecific");
    if (create && set && create(&threads.ended, thread_ends) == 0)
        threads.set = set;
}

struct pace_thread *thread_own(void)
{
    if (thread_mine)
        return thread_mine;
    struct pace_thread *own = NULL;
    __typeof__(pthread_setspecific) *set = NULL;
    pthread_key_t ended = 0;
    LOCKED(threads_lock) {
        if (!threads.set)
            find_thread_ends();
        set = threads.set;
        ended = threads.ended;
        own = slab_take(&threads.slab);
        if (own) {
            own->distrust.events = THREAD_EVENTS;
            own->random = (uint32_t)(clock_now_ns() ^ (uintptr_t)own >> 4);
            link_in(own);
        }
    }
    thread_mine = own;
    if (own && set)
        (void)set(ended, own);
    return own;
}

/* ---- the governor's ---- */

/* What was admitted by estimate on the stream and is not noted on its meter, as far as its owner
 * has written it: the owner may be writing now. */
struct estimated {
    struct meter_record *meter;
    uint64_t first_ns, work_ns;
    uint32_t launches; /* the noted ones, too */
};

static bool read_estimated(const struct thread_stream *here, int device,
    struct estimated *ret_estimated) REQUIRES(meters_lock)
{
    struct meter_record *meter = load_relaxed(&here->meter);
    const struct thread_noted *noted = &here->noted;
    uint32_t launches = load_relaxed(&here->launches), work_ns = load_relaxed(&here->work_ns);
    if (!meter || launches <= noted->launches || work_ns <= noted->work_ns)
        return false;
    *ret_estimated = (struct estimated){.meter = meter,
        .first_ns = noted->launches ? noted->at_ns : load_relaxed(&here->first_ns),
        .work_ns = work_ns - noted->work_ns,
        .launches = launches};
    return meters_is_same(meter, load_relaxed(&here->meter_id)) && meter->device == device;
}

static bool is_as_seen(const struct meter_seen *seen, const struct estimated *estimated)
{
    return seen->first_ns == estimated->first_ns && seen->launches == estimated->launches;
}

/* What a call waits for runs since the call began, the stream's last event, or the moment when it
 * was seen not to run yet: its kernel may have to be loaded first. Another thread's own stream
 * cannot be asked. */
static void see_shown(struct thread_stream *here, const struct estimated *estimated,
    uint64_t now_ns) REQUIRES(meters_lock)
{
    struct meter_seen *seen = &here->seen;
    bool works;
    if (!events_meter_works(estimated->meter, &works))
        return;
    if (!is_as_seen(seen, estimated)) {
        uint64_t from_ns = load_relaxed(&here->shown_ns),
                 reached_ns = estimated->meter->meter.reached_ns;
        from_ns = from_ns > reached_ns ? from_ns : reached_ns;
        *seen =
            (struct meter_seen){estimated->first_ns, estimated->launches, false, from_ns, from_ns};
    }
    seen->works = works || estimated->meter->thread;
    if (seen->works)
        completions_charge_run(estimated->meter, seen->charged_ns, now_ns);
    else
        seen->since_ns = now_ns;
    seen->charged_ns = now_ns;
}

/* Launched in order, and none since: what works now has worked since it was last seen to. True if
 * nothing works. */
static bool see_work(struct meter_seen *seen, const struct estimated *estimated, uint64_t now_ns)
    REQUIRES(meters_lock)
{
    bool works;
    if (!events_meter_works(estimated->meter, &works))
        return false;
    if (works && is_as_seen(seen, estimated) && seen->works) {
        completions_charge_run(estimated->meter, seen->charged_ns, now_ns);
        seen->charged_ns = now_ns;
    } else {
        *seen =
            (struct meter_seen){estimated->first_ns, estimated->launches, works, now_ns, now_ns};
    }
    return !works;
}

/* Until it has an event, it is not charged twice. */
static void settle_done(struct thread_stream *here, const struct estimated *estimated,
    uint64_t now_ns) REQUIRES(meters_lock)
{
    uint32_t noted = here->noted.work_ns;
    uint32_t charged = here->charged_ns > noted ? here->charged_ns - noted : 0;
    if (completions_charge_done(
            estimated->meter, estimated->first_ns, now_ns, estimated->work_ns, charged))
        here->charged_ns -= charged;
}

static bool is_overdue(const struct estimated *estimated, uint64_t now_ns)
{
    return now_ns > estimated->first_ns + estimated->work_ns + GRACE_NS;
}

/* What was asked for and is over is not there any more. */
static void add_seen(struct events_survey *survey, const struct meter_seen *seen,
    const struct estimated *estimated, uint64_t now_ns, uint64_t long_ns) REQUIRES(meters_lock)
{
    bool asked = is_as_seen(seen, estimated), works = asked && seen->works;
    survey->outstanding += works || !asked;
    bool runs = works && !estimated->meter->meter.open.other; /* else it may wait */
    if (runs)
        events_survey_running(survey, now_ns - seen->since_ns, long_ns);
}

static void survey_stream(struct thread_stream *here, const struct estimated *estimated,
    uint64_t now_ns, uint64_t long_ns, struct events_survey *survey) REQUIRES(meters_lock)
{
    struct meter_seen *seen = &here->seen;
    bool shown = load_relaxed(&here->shown_ns) != 0;
    estimated->meter->told_ns = now_ns;
    /* An outstanding event shows what runs. */
    if (estimated->meter->meter.count || (is_as_seen(seen, estimated) && !seen->works && !shown))
        return;
    if (is_overdue(estimated, now_ns) && shown)
        see_shown(here, estimated, now_ns);
    else if (is_overdue(estimated, now_ns) && see_work(seen, estimated, now_ns))
        settle_done(here, estimated, now_ns);
    bool over = is_as_seen(seen, estimated) && !seen->works;
    survey->outstanding += shown && over;
    add_seen(survey, seen, estimated, now_ns, long_ns);
}

/* Launches by estimate of threads that have ended since, or left the stream. */
static void survey_left(struct meter_record *record, uint64_t now_ns, uint64_t long_ns,
    struct events_survey *survey) REQUIRES(meters_lock)
{
    const struct meter_interval *open = &record->meter.open;
    const struct estimated estimated = {record, open->first_ns, open->work_ns, open->launches};
    if (!estimated.launches || record->meter.count || record->told_ns == now_ns)
        return;
    bool over = is_as_seen(&record->seen, &estimated) && !record->seen.works;
    if (!over && is_overdue(&estimated, now_ns))
        (void)see_work(&record->seen, &estimated, now_ns);
    add_seen(survey, &record->seen, &estimated, now_ns, long_ns);
}

struct events_survey thread_survey(int device, uint64_t now_ns, uint64_t long_ns)
{
    struct events_survey survey = {.long_in_ns = UINT64_MAX};
    struct estimated estimated;
    LOCKED(threads_lock) {
        for (struct pace_thread *own = threads.first; own; own = own->next) {
            for (unsigned i = 0; i < THREAD_STREAMS; i++) {
                if (read_estimated(&own->streams[i], device, &estimated))
                    survey_stream(&own->streams[i], &estimated, now_ns, long_ns, &survey);
            }
        }
    }
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *meter = context->meters; meter; meter = meter->next) {
            if (meter->device == device)
                survey_left(meter, now_ns, long_ns, &survey);
        }
    }
    return survey;
}

static bool works(const struct thread_stream *here, int device) REQUIRES(meters_lock)
{
    struct estimated estimated;
    bool works;
    return read_estimated(here, device, &estimated) && !estimated.meter->meter.count &&
           !estimated.meter->meter.open.other && events_meter_works(estimated.meter, &works) &&
           works;
}

bool thread_estimated_works(int device)
{
    bool any = false;
    LOCKED_TO_END(threads_lock);
    for (struct pace_thread *own = threads.first; own; own = own->next) {
        for (unsigned i = 0; i < THREAD_STREAMS && !any; i++)
            any = works(&own->streams[i], device);
    }
    return any;
}

void thread_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    thread_mine = NULL;
    lock_reset(&threads_lock);
    threads.first = NULL;
    slab_finish(&threads.slab);
}
