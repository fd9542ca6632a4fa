/* SPDX-License-Identifier: Apache-2.0 */
/* The meter's timing events: events with time that are recorded on the program's streams, and what
 * they tell when they are reached. A meter (compute/meter.h) for each stream that launches under a
 * limit; meters and events die with their context. */
#ifndef VGPU_PACE_EVENTS_H
#define VGPU_PACE_EVENTS_H

#include "pace/meters.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the driver refuses a timing event, or does not tell its time, the device's work cannot be
 * measured: until one is reached again the time between launches counts as busy. Returns how much
 * passed since the last call, 0 where timing events are to be had. */
uint64_t events_blind_ns(unsigned device, uint64_t now_ns);

/* The driver refused a call by which time is measured; it answered one again. */
void events_note_blind(int device, CUresult result, uint64_t now_ns);
void events_note_seen(int device);

/* Whether another thread is between two steps of recording a timing event on it. */
bool events_others_record(const struct meter_record *record) REQUIRES(meters_lock);

/* Records a timing event behind what the meter notes; errors of the driver leave the interval open.
 * `id`: the meter's when it was had. run.shared is found out here. */
void events_record(struct meter_record *record, uint32_t id, struct meter_run run);

/* Ends the intervals that this thread left open on the context's other streams; not on the legacy
 * one, where a timing event would be a barrier to all others. */
void events_close_others(const struct meter_record *record, uint32_t id);

/* Whether the stream is one of several of its context that launch: another had a timing event
 * lately. */
bool events_beside(const struct meter_record *record, uint64_t now_ns) REQUIRES(meters_lock);

/* How many timing events of the device stand behind launches that nobody knows the duration of. */
unsigned events_unknown(int device) REQUIRES(meters_lock);

/* Whether the stream has work on its way, of which no timing event may tell. Not while it
 * captures. */
bool events_stream_works(CUstream stream);

/* The same for a meter, with its context made current for the while. False where it cannot be told
 * now: the stream captures, into which others may have taken it, and to ask would break the
 * capture. The stream of another thread's own, which cannot be asked ever, does not work. */
bool events_meter_works(const struct meter_record *record, bool *ret_works) REQUIRES(meters_lock);

/* Whether a timing event of the device is outstanding, as last polled, and launches before it: they
 * run, or are about to. What else may be there before it does not count. *ret_running_ns: for how
 * long they have, and are not charged for yet; of several streams the sum. */
bool events_work(int device, uint64_t now_ns, uint64_t *ret_running_ns) REQUIRES(meters_lock);

/* What is on its way on the device: on how many streams, as they were last polled, whether some of
 * it has run for at least so long, or when it may have (meter_long_in_ns), and how much of what it
 * was charged with has not run yet. */
struct events_survey {
    unsigned outstanding;
    bool runs_long;
    uint64_t left_ns;
    uint64_t long_in_ns; /* when something may have run so long; UINT64_MAX: not to be expected */
};

/* Adds something that has run for so long and is not over. */
static inline void events_survey_running(
    struct events_survey *survey, uint64_t run_ns, uint64_t long_ns)
{
    uint64_t left_ns = run_ns < long_ns ? long_ns - run_ns : 0;
    survey->runs_long |= !left_ns;
    if (left_ns < survey->long_in_ns)
        survey->long_in_ns = left_ns;
}

struct events_survey events_survey(int device, uint64_t now_ns, uint64_t long_ns)
    REQUIRES(meters_lock);

/* Something that may take long goes onto the meter's stream: what is open there has it in it, and
 * on those that wait for the stream without being told to: the legacy one, or for that all others.
 */
void events_note_other(struct meter_record *record) REQUIRES(meters_lock);

/* A wait goes onto all streams of the context: what is open on them has one in it. */
void events_context_waits(CUcontext context);

/* In a forked child. */
void events_reset(void);

#endif
