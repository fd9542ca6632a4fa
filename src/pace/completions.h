/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: which timing events the device has reached, and what is charged for the intervals
 * that they end. */
#ifndef VGPU_PACE_COMPLETIONS_H
#define VGPU_PACE_COMPLETIONS_H

#include "pace/meters.h"

#include <stdbool.h>
#include <stdint.h>

/* How many timing events were reached so far. */
extern uint64_t completions_count;

/* Sees which timing events were reached, on all streams of the device, and charges for them; what
 * runs on is charged up to now. Returns how many timing events are outstanding. */
unsigned completions_poll(int device) REQUIRES(meters_lock);
unsigned completions_poll_all(void) REQUIRES(meters_lock);

/* Charges for the timing events that were reached; returns how many are outstanding. */
unsigned completions_poll_context(struct pace_context *context) REQUIRES(meters_lock);

/* Charges for what runs on the stream without a pause between the two, of which no timing event
 * tells. */
void completions_charge_run(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
    REQUIRES(meters_lock);

/* The same for what no meter knows of, whatever else is on its way on the stream. */
void completions_charge_unmeasured(struct meter_record *record, uint64_t from_ns, uint64_t to_ns)
    REQUIRES(meters_lock);

/* Charges for what is over on the stream and no timing event tells of yet: launches since `from_ns`
 * that are thought to take `work_ns`, of which `charged_ns` was taken from the budget: it is given
 * back. False where nothing is to be charged, or given back. */
bool completions_charge_done(struct meter_record *record, uint64_t from_ns, uint64_t to_ns,
    uint64_t work_ns, uint64_t charged_ns) REQUIRES(meters_lock);

#endif
