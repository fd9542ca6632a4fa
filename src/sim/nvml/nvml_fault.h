/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of simulated cards, by a file that VGPU_SIM_FAULTS names and that tests append lines to:
 *   xid CARD NUMBER   an event for those who wait for events of the card (its NVML index)
 *   ecc CARD          the event of an uncorrectable ECC error
 *   lost CARD         from now on every question about it answers GPU_IS_LOST
 *   back CARD         no longer
 *   reset CARD        its energy counter begins again
 * Without the variable there are none. Any thread. */
#ifndef VGPU_SIM_NVML_NVML_FAULT_H
#define VGPU_SIM_NVML_NVML_FAULT_H

#include <stdbool.h>
#include <stdint.h>

struct nvml_fault_event {
    unsigned card;
    unsigned long long type, data; /* as nvmlEventData_t has them */
};

/* Whether there may be any. */
bool nvml_fault_is_possible(void);

bool nvml_fault_is_lost(unsigned card);

/* How many events there were so far; the event of a number below that. */
unsigned nvml_fault_event_count(void);
struct nvml_fault_event nvml_fault_event(unsigned number);

/* CLOCK_MONOTONIC in ms when this process first saw the card's last reset; 0: there was none. */
uint64_t nvml_fault_reset_ms(unsigned card);

#endif
