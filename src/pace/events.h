/* SPDX-License-Identifier: Apache-2.0 */
/* Timing events: driver events with time that are recorded on the program's streams, and what is on
 * its way between them. */
#ifndef VGPU_PACE_EVENTS_H
#define VGPU_PACE_EVENTS_H

#include "pace/meters.h"

#include <stdbool.h>
#include <stdint.h>

/* If the driver refuses events, or their time, the device's work cannot be measured: the time
 * between launches counts as busy until an event is reached again. Returns how much passed since
 * the last call; 0: events are not refused. */
uint64_t events_blind_ns(unsigned device, uint64_t now_ns);

/* The driver refused a call that measures time; it answered one again. */
void events_note_blind(int device, CUresult result, uint64_t now_ns);
void events_note_seen(int device);

/* Whether another thread is recording an event on the meter's stream. */
bool events_others_record(const struct meter_record *record) REQUIRES(meters_lock);

/* Records an event behind what the meter notes; after an error of the driver the interval stays
 * open. `id`: the meter's when it was found. Sets run.shared. */
void events_record(struct meter_record *record, uint32_t id, struct meter_run run);

/* Ends the intervals that this thread left open on the context's other streams; not on the legacy
 * one, where an event would be a barrier to all others. */
void events_close_others(const struct meter_record *record, uint32_t id);

/* Whether another stream of the context launches too: it had an event within 0.2 s. */
bool events_beside(const struct meter_record *record, uint64_t now_ns) REQUIRES(meters_lock);

/* How many events of the device are behind launches of unknown duration. */
unsigned events_unknown(int device) REQUIRES(meters_lock);

/* Whether the stream has work on its way, with or without an event. Not while it captures. */
bool events_stream_works(CUstream stream);

/* The same for a meter, with its context made current meanwhile. False if it cannot be asked now:
 * the stream captures (another thread may have taken it into a capture), and the question would
 * break that. Another thread's own stream can never be asked: it counts as idle. */
bool events_meter_works(const struct meter_record *record, bool *ret_works) REQUIRES(meters_lock);

/* Whether an event of the device with launches before it is outstanding, as last polled: they run,
 * or are about to. Other work before it does not count. *ret_running_ns: how long they may have run
 * without being charged; the sum of all streams. */
bool events_work(int device, uint64_t now_ns, uint64_t *ret_running_ns) REQUIRES(meters_lock);

/* What is on its way on the device, as last polled: on how many streams, whether something has run
 * for `long_ns`, or when it may have (meter_long_in_ns), and how much of what was charged has not
 * run yet. */
struct events_survey {
    unsigned outstanding;
    bool runs_long;
    uint64_t left_ns;
    uint64_t long_in_ns; /* until something may have run that long; UINT64_MAX: not expected */
};

/* Adds something that has run for `run_ns` and is not over. */
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

/* Something that may take long goes onto the meter's stream: it counts in the open intervals there
 * and on streams that wait for that one implicitly (the legacy stream, or all others for that). */
void events_note_other(struct meter_record *record) REQUIRES(meters_lock);

/* A wait goes onto all streams of the context: it counts in their open intervals. */
void events_context_waits(CUcontext context);

/* In a forked child. */
void events_reset(void);

#endif
