/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: which timing events the device has reached, and what is charged for the intervals
 * that they end. */
#ifndef VGPU_PACE_COMPLETIONS_H
#define VGPU_PACE_COMPLETIONS_H

#include "pace/meters.h"

#include <stdbool.h>
#include <stdint.h>

/* How many events were reached so far. */
extern uint64_t completions_count;

/* Polls the events of all streams of the device, and charges for those that were reached; what runs
 * longer than estimated is charged up to now. Returns how many are outstanding. */
unsigned completions_poll(int device) REQUIRES(meters_lock);
unsigned completions_poll_all(void) REQUIRES(meters_lock);

/* The same for a context. */
unsigned completions_poll_context(struct pace_context *context) REQUIRES(meters_lock);

/* Charges for what ran on the stream without a pause between the two moments, and has no event. */
void completions_charge_run(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
    REQUIRES(meters_lock);

/* The same for what no meter knows of, beside whatever else is on its way on the stream. */
void completions_charge_unmeasured(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
    REQUIRES(meters_lock);

/* Charges for what is over on the stream and has no event yet: launches since `from_ns` with
 * estimates of `work_ns`, of which `charged_ns` was taken from the budget and is given back. False
 * if nothing is charged or given back. */
bool completions_charge_done(struct meter_record *record, uint64_t from_ns, uint64_t to_ns,
    uint64_t work_ns, uint64_t charged_ns) REQUIRES(meters_lock);

#endif
