/* SPDX-License-Identifier: Apache-2.0 */
/* The launch gate: where launches wait until the budget admits them (compute/budget.h). Any thread,
 * without locks. */
#ifndef VGPU_PACE_GATE_H
#define VGPU_PACE_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct meter_record;

/* From now on the governor watches, and the end of the process is noticed. */
void gate_watch(void);

/* The same without a limit, if the container may be paused. */
void gate_stand_by(void);

/* Blocks while the container is held (policy_hold). */
void gate_wait_while_held(void);

/* Polls the completions on the stream's device; returns how many are outstanding on the stream,
 * *ret_on_device: on the device. While channels are closed the driver is not asked. */
unsigned gate_poll(const struct meter_record *record, unsigned *ret_on_device);

/* Waits until the budget admits `coming_ns` on the stream's device, and takes that from it.
 * `before` is called once, before the first sleep; *ret_waited: there was one. Returns the balance.
 * Goes on after 10 s without a completion: what runs may be waiting for this launch. */
int64_t gate_wait(const struct meter_record *record, uint32_t id, uint64_t coming_ns,
    void (*before)(const struct meter_record *record, uint32_t id), bool *ret_waited);

/* Charges what was admitted by estimate now. Returns the balance; INT64_MIN if a launch would have
 * to wait, or there is no limit. */
int64_t gate_charge_now(unsigned device);

/* Waits, at most 100 ms, while several launches of unknown duration are on the device; after such a
 * wait in vain, not again until something completes. */
void gate_wait_until_known(struct meter_record *record, uint64_t key);

/* In a forked child. */
void gate_reset(void);

#endif
