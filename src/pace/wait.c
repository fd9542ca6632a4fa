/* SPDX-License-Identifier: Apache-2.0 */
/* Waits. What a thread launched between two of its waits is a round (struct thread_round). How long
 * that took, as the thread saw it, shows whether its launches may go by estimate; if rounds exceed
 * their estimates, events behind each show what they took. */
#include "pace/pace.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "container/container.h"
#include "pace/completions.h"
#include "pace/events.h"
#include "pace/thread.h"

#include <stddef.h>

/* Nanoseconds for which each round gets an event if rounds exceeded their estimates by more than
 * EXCESS_NS and a hundredth of the time: now and then the same kernel may have more to do. */
#define EVENTS_NS 10000000000ull
/* Nanoseconds since the last such round after which they end, and the bounds above. */
#define EVENTS_AGREE_NS 1000000000ull
#define EXCESS_NS 10000000ull
#define EXCESS_PART 100
/* Nanoseconds. A thread that is woken late sees the same, but the events then show no excess: the
 * next time this much more is tolerated, doubling from EXCESS_NS. */
#define TOLERATED_MOST_NS 100000000ull
/* Rounds after a quiet time that get a closer look after that: 8, and if the thread did something
 * else before it waited, so that the wait showed nothing, twice as many as the last time, up to
 * LOOKS_MOST. */
#define LOOKS 8
#define LOOKS_MOST 4096
/* Rounds after a quiet time of which one gets an event by chance, and the next one too, although
 * all match their estimates: between those two events is one round alone. */
#define RECORDED_PART 8
/* Nanoseconds in which a launch comes to an idle device, and a wait ends: added to the tolerance of
 * an estimate. */
#define WAKE_NS 100000

/* ---- what a round says ---- */

/* A round in which the thread did something else before it waited may have taken any part of
 * that. */
static bool is_hidden(const struct thread_round *round, int64_t work_ns, int64_t off_ns)
{
    return (int64_t)(round->waiting_ns - round->began_ns) > work_ns + off_ns;
}

static void look_closer(struct thread_distrust *distrust, bool hidden)
{
    if (hidden)
        distrust->hidden_looks =
            distrust->hidden_looks < LOOKS ? LOOKS : 2 * distrust->hidden_looks;
    if (distrust->hidden_looks > LOOKS_MOST)
        distrust->hidden_looks = LOOKS_MOST;
    distrust->looks = distrust->hidden_looks > LOOKS ? distrust->hidden_looks : LOOKS;
}

/* A round's excess that was not charged. */
static void note_excess(struct thread_distrust *distrust, uint64_t ns, uint64_t now_ns)
{
    uint64_t forgiven = (now_ns - distrust->at_ns) / EXCESS_PART;
    distrust->excess_ns =
        (distrust->excess_ns > forgiven ? distrust->excess_ns - forgiven : 0) + ns;
    distrust->at_ns = now_ns;
    if (distrust->excess_ns <= EXCESS_NS + distrust->tolerated_ns)
        return;
    distrust->excess_ns = distrust->measured_ns = distrust->meter_id = 0;
    distrust->events_to_ns = now_ns + EVENTS_NS;
}

/* It was not the GPU that took long. */
static void tolerate_more(struct thread_distrust *distrust)
{
    distrust->events_to_ns = 0;
    distrust->tolerated_ns = 2 * distrust->tolerated_ns + EXCESS_NS;
    if (distrust->tolerated_ns > TOLERATED_MOST_NS)
        distrust->tolerated_ns = TOLERATED_MOST_NS;
}

/* The stream's meter after a poll; NULL if it is no longer the thread's. */
static const struct stream_meter *polled_meter(const struct thread_stream *here)
    REQUIRES(meters_lock)
{
    if (!thread_is_current(here, here->stream))
        return NULL;
    (void)completions_poll(here->device);
    return &here->meter->meter;
}

/* The excess of a round that has an event. */
static void note_measured(
    const struct thread_stream *here, struct thread_distrust *distrust, uint64_t ns)
{
    bool known = distrust->meter_id == here->meter_id;
    distrust->measured_ns += ns;
    if (known && distrust->measured_ns <= EXCESS_NS)
        return;
    bool same = false;
    uint64_t longer_ns = 0;
    LOCKED(meters_lock) {
        const struct stream_meter *meter = polled_meter(here);
        same = meter != NULL;
        longer_ns = same ? meter->longer_ns : 0;
    }
    if (same && known && longer_ns - distrust->meter_ns < distrust->measured_ns / 4)
        tolerate_more(distrust);
    else if (same && known)
        distrust->tolerated_ns = 0;
    distrust->meter_id = same ? here->meter_id : 0;
    distrust->meter_ns = longer_ns;
    distrust->measured_ns = 0;
}

/* A round did not exceed its estimate. */
static void note_agreed(struct thread_distrust *distrust, uint64_t now_ns)
{
    if (now_ns > distrust->longer_ns + EVENTS_AGREE_NS)
        distrust->events_to_ns = 0;
}

static int64_t work_of(const struct thread_stream *here)
{
    return (int64_t)here->work_ns - here->round.before_ns;
}

static int64_t off_by(int64_t work_ns)
{
    return work_ns / THREAD_TOLERANCE_PART + WAKE_NS;
}

/* When the device had finished the round, by the event behind it; 0 if that is not known. */
static uint64_t done_ns(const struct thread_stream *here)
{
    LOCKED_TO_END(meters_lock);
    const struct stream_meter *meter = here->launches ? NULL : polled_meter(here);
    return meter && !meter->count && !meter->open.launches ? meter->reached_ns : 0;
}

/* How long the round took: the thread may have been woken late. */
static int64_t took(const struct thread_stream *here, uint64_t now_ns, int64_t most_ns)
{
    const struct thread_round *round = &here->round;
    uint64_t took_ns = now_ns - round->began_ns;
    if ((int64_t)took_ns <= most_ns || !round->recorded || !round->quiet)
        return (int64_t)took_ns;
    uint64_t done = done_ns(here);
    return (int64_t)(done > round->began_ns && done < now_ns ? done - round->began_ns : took_ns);
}

static bool is_uninstrumented(const struct thread_round *round)
{
    return round->quiet && !round->recorded;
}

static void note_shorter(struct thread_stream *here, int64_t less_ns)
{
    if (is_uninstrumented(&here->round))
        thread_took_less(here, (uint32_t)less_ns);
    look_closer(&thread_mine->distrust, false);
}

/* If a round after a quiet time has no event, the next ones show whether it was the device. */
static void note_longer(
    const struct thread_stream *here, int64_t more_ns, bool hidden, uint64_t now_ns)
{
    struct pace_thread *own = thread_mine;
    if (hidden || !is_uninstrumented(&here->round))
        look_closer(&own->distrust, hidden);
    if (hidden)
        return;
    if (!here->round.recorded)
        note_excess(&own->distrust, (uint64_t)more_ns, now_ns);
    else if (!here->round.quiet)
        note_measured(here, &own->distrust, (uint64_t)more_ns);
}

/* Whether what is launched from now on may go by estimate. */
static void judge_round(struct thread_stream *here, uint64_t now_ns)
{
    struct pace_thread *own = thread_mine;
    const struct thread_round *round = &here->round;
    int64_t work_ns = work_of(here), off_ns = off_by(work_ns),
            took_ns = took(here, now_ns, work_ns + off_ns);
    bool longer = took_ns > work_ns + off_ns;
    if (longer)
        own->distrust.longer_ns = now_ns;
    else if (round->recorded)
        note_agreed(&own->distrust, now_ns);
    if (!longer && took_ns >= work_ns - off_ns) {
        own->distrust.hidden_looks -= own->distrust.hidden_looks && round->quiet;
        return;
    }
    own->distrust.events = THREAD_EVENTS;
    if (longer)
        note_longer(here, took_ns - work_ns, is_hidden(round, work_ns, off_ns), now_ns);
    else
        note_shorter(here, work_ns - took_ns);
}

/* ---- rounds that go on ---- */

/* The next of the thread's streams, from `place` on, whose round is not over; NULL: there is
 * none. */
static struct thread_stream *next_round(unsigned place)
{
    while (thread_mine && place < THREAD_STREAMS && thread_mine->rounds >> place) {
        place += (unsigned)__builtin_ctzll(thread_mine->rounds >> place);
        struct thread_stream *here = &thread_mine->streams[place];
        if (here->stream && thread_round_goes_on(here))
            return here;
        thread_mine->rounds &= ~(1ull << place);
    }
    return NULL;
}

static unsigned behind(const struct thread_stream *here)
{
    return (unsigned)(here - thread_mine->streams) + 1;
}

static struct thread_stream *only_round(void)
{
    struct thread_stream *first = next_round(0);
    return first && !next_round(behind(first)) ? first : NULL;
}

/* ---- waits for a stream ---- */

/* The thread's place for the stream if its round is not over; else NULL. */
static struct thread_stream *round_of(CUstream stream)
{
    struct thread_stream *here = thread_mine ? thread_stream(thread_mine, stream) : NULL;
    return here && here->stream == stream && thread_round_goes_on(here) ? here : NULL;
}

static void note_waiting(struct thread_stream *here)
{
    if (!here->round.waiting_ns)
        here->round.waiting_ns = clock_now_ns();
}

/* Recent rounds exceeded their estimates: each has an event for a while. */
static bool is_distrusted(const struct thread_round *round)
{
    return round->waiting_ns < thread_mine->distrust.events_to_ns;
}

/* While what is waited for runs. */
static void record_round(struct thread_stream *here)
{
    struct pace_thread *own = thread_mine;
    if (!here->launches || !(here->round.quiet || is_distrusted(&here->round)))
        return;
    here->round.recorded = thread_record(here, here->stream, here->round.dry);
    own->distrust.events -= here->round.recorded && here->round.quiet && own->distrust.events;
}

static void end_round(struct thread_stream *here, uint64_t now_ns, bool over)
{
    here->round.awaited_ns = now_ns;
    here->round.over = over;
    here->copied = false;
    thread_mine->rounds &= ~(1ull << (here - thread_mine->streams));
}

/* One kernel, and nothing else on this stream or another: the thread sees as well what it takes. */
static bool is_plain(const struct thread_stream *here)
{
    return here->launches == here->round.before + 1 && !here->copied && only_round() == here;
}

/* An event is one thing more to wait for. Of requests that come alone and match their estimates,
 * few have one, so that most are as fast as without a limit, and estimates stay right. */
static bool needs_no_event(const struct thread_stream *here)
{
    struct pace_thread *own = thread_mine;
    if (!here->round.quiet || is_distrusted(&here->round) || !is_plain(here))
        return false;
    if (!own->distrust.events && thread_random(own) % RECORDED_PART == 0)
        own->distrust.events = 2;
    return !own->distrust.events;
}

bool pace_stream_wait_begins_slow(CUstream stream, enum stream_zero zero)
{
    fork_enter(container_reset);
    struct thread_stream *here = round_of(thread_named(stream, zero));
    if (!here)
        return false;
    note_waiting(here);
    if (!needs_no_event(here))
        record_round(here);
    return true;
}

void pace_stream_awaited(CUstream stream, enum stream_zero zero)
{
    struct thread_stream *here = round_of(thread_named(stream, zero));
    if (!here)
        return;
    uint64_t now = clock_now_ns();
    judge_round(here, now);
    end_round(here, now, true);
}

/* A program that asks for an idle stream is answered first: an event comes after the answer. */
bool pace_stream_asked_slow(CUstream stream, enum stream_zero zero)
{
    fork_enter(container_reset);
    struct thread_stream *here = round_of(thread_named(stream, zero));
    if (here)
        note_waiting(here);
    return here;
}

void pace_stream_works(CUstream stream, enum stream_zero zero)
{
    struct thread_stream *here = round_of(thread_named(stream, zero));
    if (here)
        record_round(here);
}

/* ---- waits for a context, or an event ---- */

bool pace_wait_begins_slow(bool asks)
{
    fork_enter(container_reset);
    struct thread_stream *here = next_round(0);
    if (!here)
        return false;
    for (; here; here = next_round(behind(here))) {
        note_waiting(here);
        if (!asks)
            record_round(here);
    }
    return true;
}

void pace_works(void)
{
    for (struct thread_stream *here = next_round(0); here; here = next_round(behind(here)))
        record_round(here);
}

/* If streams wait for each other the time shows little: their next launches get a closer look, as
 * if there had been no wait. */
void pace_context_awaited(void)
{
    uint64_t now = clock_now_ns();
    struct thread_stream *here = only_round();
    bool other = false;
    if (here)
        judge_round(here, now);
    for (here = next_round(0); here; here = next_round(behind(here)))
        other |= here->round.other;
    for (here = next_round(0); here; here = next_round(behind(here))) {
        if (other)
            here->round = (struct thread_round){0};
        else
            end_round(here, now, true);
    }
}

/* The event may be before what was launched last: if the wait took as long as all of the round, it
 * may have been all. */
void pace_event_awaited(void)
{
    struct thread_stream *here = only_round();
    uint64_t now = clock_now_ns();
    if (!here)
        return;
    int64_t work_ns = work_of(here);
    if ((int64_t)(now - here->round.began_ns) < work_ns - off_by(work_ns))
        return;
    judge_round(here, now);
    end_round(here, now, false);
}
