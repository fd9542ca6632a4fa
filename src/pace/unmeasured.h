/* SPDX-License-Identifier: Apache-2.0 */
/* What a program launched while nothing was limited, without events: a limit that comes later holds
 * it as well. The governor asks its streams whether they work; an event would be a barrier on a
 * legacy stream, which the program did not ask for. */
#ifndef VGPU_PACE_UNMEASURED_H
#define VGPU_PACE_UNMEASURED_H

#include "pace/capture.h"
#include "pace/events.h"

/* Where a thread's launch was noted. */
struct unmeasured_noted {
    const struct meter_record *record; /* NULL: nowhere */
    uint32_t id;
};

/* The calling thread launches on the stream without a limit; called for one of several launches. */
struct unmeasured_noted unmeasured_note(CUstream stream, enum stream_zero zero);

/* Whether that still holds: the stream is the same, and was not seen idle since. */
static inline bool unmeasured_is_noted(const struct unmeasured_noted *noted)
{
    return noted->record && meters_is_same(noted->record, noted->id) &&
           load_relaxed(&noted->record->unmeasured);
}

/* For the governor: adds what still runs on the device to the survey, and charges for it from the
 * first look under a limit on. */
void unmeasured_survey(int device, uint64_t now_ns, uint64_t long_ns, struct events_survey *survey)
    REQUIRES(meters_lock);

/* Nothing is limited: what passes until something is, is not charged. */
void unmeasured_stand_by(uint64_t now_ns);

#endif
