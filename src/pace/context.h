/* SPDX-License-Identifier: Apache-2.0 */
/* What the meter keeps of a context: shared by those who record timing events (pace/events.c) and
 * those who see them reached (pace/completions.c). */
#ifndef VGPU_PACE_CONTEXT_H
#define VGPU_PACE_CONTEXT_H

#include "pace/events.h"

#define SPARE_EVENTS 64

/* GPU time as the events of a context tell it, put onto the processor's clock: a timing event is
 * reached after it was recorded and before it is seen to be. */
struct pace_context {
    struct pace_context *next;
    CUcontext handle;
    int device;
    struct meter_record *meters;
    uint64_t polled_ns; /* its timing events were asked for last */
    CUevent base;
    uint64_t base_ns; /* when it was reached, as far as that is known */
    uint64_t late_ns; /* by so much at most timing events on idle streams seem to be reached late */
    unsigned idle_events; /* which were so many, since base_ns was set right by them */
    unsigned spare_count;
    CUevent spares[SPARE_EVENTS];
};

/* All of them, a list. */
struct pace_context *events_contexts(void) REQUIRES(events_lock);

/* An event of the context's that is not needed now. */
void events_spare_give(struct pace_context *context, CUevent event) REQUIRES(events_lock);

/* The driver refused a call by which time is measured; it answered one again. */
void events_note_blind(int device, CUresult result, uint64_t now_ns);
void events_note_seen(int device);

/* Forgets a meter whose timing events are all out. */
void events_meter_drop(struct meter_record **link) REQUIRES(events_lock);

/* The meter is its stream's no more: nobody finds it, what it has timing events for is seen to its
 * end. */
void events_meter_unlink(struct meter_record *record) REQUIRES(events_lock);

/* Another id: what others kept of the meter is not current any more. */
void events_meter_renew(struct meter_record *record) REQUIRES(events_lock);

/* Whether another thread is between two steps of recording a timing event on it. */
bool events_others_record(const struct meter_record *record) REQUIRES(events_lock);

/* Gives up the context's events. Where it has meters still, it stays for them, nobody's. */
void events_context_drop(struct pace_context *context) REQUIRES(events_lock);

#endif
