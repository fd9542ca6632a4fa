/* SPDX-License-Identifier: Apache-2.0 */
/* Streams with work that is not measured. */
#include "pace/unmeasured.h"

#include "base/atomic.h"
#include "pace/completions.h"
#include "pace/meters.h"
#include "pace/policy.h"
#include "pace/thread.h"

static uint64_t stood_by_ns; /* the governor's */

struct unmeasured_noted unmeasured_note(CUstream stream, enum stream_zero zero)
{
    struct unmeasured_noted noted = {.record = NULL};
    if (!policy_is_given() || capture_records(stream, zero))
        return noted;
    LOCKED_TO_END(meters_lock);
    struct meter_record *record = meters_of(thread_named(stream, zero));
    if (record && !record->unmeasured) {
        record->unmeasured_ns = 0;
        store_relaxed(&record->unmeasured, true);
    }
    if (record)
        noted = (struct unmeasured_noted){record, record->id};
    return noted;
}

void unmeasured_stand_by(uint64_t now_ns)
{
    stood_by_ns = now_ns;
}

/* An event behind it was reached, or its stream is gone. */
static bool is_over(const struct meter_record *record)
{
    return record->orphan || record->meter.former_ns > record->unmeasured_ns;
}

/* While its stream captures it cannot be asked. */
static void survey_meter(struct meter_record *record, uint64_t now_ns, uint64_t long_ns,
    struct events_survey *survey) REQUIRES(meters_lock)
{
    bool works = false;
    if (!record->unmeasured_ns || record->unmeasured_ns <= stood_by_ns)
        record->unmeasured_ns = record->unmeasured_to_ns = now_ns;
    bool told = is_over(record) || events_meter_works(record, &works);
    store_relaxed(&record->unmeasured, works || !told);
    if (works) {
        completions_charge_unmeasured(record, record->unmeasured_to_ns, now_ns);
        survey->outstanding++;
        events_survey_running(survey, now_ns - record->unmeasured_ns, long_ns);
    }
    record->unmeasured_to_ns = now_ns;
}

void unmeasured_survey(int device, uint64_t now_ns, uint64_t long_ns, struct events_survey *survey)
{
    for (struct pace_context *context = meters_contexts(); context; context = context->next) {
        for (struct meter_record *record = context->meters; record; record = record->next) {
            if (record->device != device || !record->unmeasured)
                continue;
            if (policy_percent((unsigned)device))
                survey_meter(record, now_ns, long_ns, survey);
            else
                record->unmeasured_ns = 0;
        }
    }
}
