/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the calling process through each instruction of libvgpu.so, by the processor's trap flag
 * within the library and at full speed outside; and kills it at one of them. x86-64 only. */
#ifndef VGPU_TEST_STEPPER_H
#define VGPU_TEST_STEPPER_H

#include <stdbool.h>
#include <stdint.h>

#define STEPPER_STEPS_MAX 200000

/* What one run went through, in memory that processes share. */
struct stepper_trace {
    unsigned count;
    uintptr_t steps[STEPPER_STEPS_MAX];
};

/* NULL, or why it cannot be done here. Once, before the others. */
const char *stepper_prepare(void);

/* An instruction of src/region, by the library's own symbols. */
bool stepper_is_region(uintptr_t step);

/* From the next call of a door on, until stepper_stop. Doors: the functions through which the
 * library is entered; NULL ends the list. */
void stepper_record(void *const doors[], struct stepper_trace *trace);

/* SIGKILL before the occurrence-th time (from 1) that the instruction is executed. */
void stepper_kill_at(uintptr_t step, unsigned occurrence);

void stepper_stop(void);

#endif
