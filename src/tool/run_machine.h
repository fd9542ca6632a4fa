/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated machine that all `vgpu run --sim` of a user share. */
#ifndef VGPU_TOOL_RUN_MACHINE_H
#define VGPU_TOOL_RUN_MACHINE_H

/* Where neither the description nor the environment names a machine: names the user's own shared
 * one in VGPU_SIM_MACHINE, and keeps it from being removed for as long as this process lives. Where
 * it cannot be used one line on stderr says so, and nothing is named. */
void run_machine_share(const char *description);

/* The run has ended. Removes the shared machines where no other run uses them, and no process. */
void run_machine_leave(void);

#endif
