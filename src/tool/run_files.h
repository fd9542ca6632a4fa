/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a `vgpu run`: its region and, simulated, its machine. */
#ifndef VGPU_TOOL_RUN_FILES_H
#define VGPU_TOOL_RUN_FILES_H

#define RUN_FILES_TEMPLATE "/tmp/vgpu-run-XXXXXX"

/* Says in the environment where they lie, and makes the directory for what is not elsewhere.
 * `region`: what --region names, `sim`: the machine's description; each may be NULL. `directory`:
 * RUN_FILES_TEMPLATE, and then the directory, or "" where none is needed. It stays locked until
 * this process ends, however it does. Returns 0, or the exit status after one line on stderr. */
int run_files_make(const char *region, const char *sim, char *directory)
    __attribute__((warn_unused_result));

/* Of a run that has ended; "": nothing. Where a process of it lives on they stay, for a later run's
 * sweep. */
void run_files_remove(const char *directory);

/* Removes what earlier runs of this user left, because they were killed or a process of theirs
 * outlived them. */
void run_files_sweep(void);

#endif
