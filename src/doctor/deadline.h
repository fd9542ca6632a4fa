/* SPDX-License-Identifier: Apache-2.0 */
/* Work with a deadline: a file system that does not answer blocks the process that asks it. */
#ifndef VGPU_DOCTOR_DEADLINE_H
#define VGPU_DOCTOR_DEADLINE_H

/* Has a child do the work, and returns its exit status. Where it has not ended in time, one line
 * says at what it was, and it is left behind. */
int doctor_within(unsigned seconds, int (*work)(void *context), void *context);

/* What the signals do that would end this process: SIGHUP, SIGINT and SIGTERM. */
enum doctor_signals {
    DOCTOR_SIGNALS_END_US,    /* as ever; those that came meanwhile, too */
    DOCTOR_SIGNALS_END_CHILD, /* that of doctor_within */
    DOCTOR_SIGNALS_WAIT,
};
void doctor_take_signals(enum doctor_signals how);

/* What the work is at. */
void doctor_step(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
