/* SPDX-License-Identifier: Apache-2.0 */
/* The gate where launches wait until a device admits their container (compute/budget.h). Any
 * thread, without locks. */
#ifndef VGPU_PACE_GATE_H
#define VGPU_PACE_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct meter_record;

/* From now on the governor watches, and the end of the process is seen. */
void gate_watch(void);

/* The same without a limit, where a container may yet be paused. */
void gate_stand_by(void);

/* Blocks while the container may not work at all (policy_hold). */
void gate_wait_while_held(void);

/* Polls the completions on the stream's device; returns how many are outstanding on the stream,
 * *ret_on_device: on the device. While the channels are closed nothing is asked. */
unsigned gate_poll(const struct meter_record *record, unsigned *ret_on_device);

/* Waits until the stream's device admits the container, and takes `coming_ns` from the budget.
 * `before` is called once before the first sleep; *ret_waited: there was one. Returns the balance.
 * Where nothing moves for 10 s, goes on: what runs may be waiting for this launch. */
int64_t gate_wait(const struct meter_record *record, uint32_t id, uint64_t coming_ns,
    void (*before)(const struct meter_record *record, uint32_t id), bool *ret_waited);

/* Takes what was admitted by estimate from the budget. Returns the balance; INT64_MIN where a
 * launch would have to wait, or there is no limit. */
int64_t gate_charge_now(unsigned device);

/* Waits, at most 100 ms, while several launches of unknown duration are on the device; after such a
 * wait was in vain not again until something was reached. */
void gate_wait_until_known(struct meter_record *record, uint64_t key);

/* In a forked child. */
void gate_reset(void);

#endif
