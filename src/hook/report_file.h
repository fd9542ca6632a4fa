/* SPDX-License-Identifier: Apache-2.0 */
/* The process's report in a file, for `vgpu doctor -- COMMAND`, which names a directory for it
 * (VGPU_REPORT_DIR): written at the first call of the driver's, at each change of what is told
 * apart, now and then, and at exit. docs/doctor.md, "The reports of a command's processes". */
#ifndef VGPU_HOOK_REPORT_FILE_H
#define VGPU_HOOK_REPORT_FILE_H

#include "base/atomic.h"

#include <stdbool.h>

/* By which doors the process's programs got at functions of ours: what they can call them by. */
enum report_door {
    REPORT_DOOR_DLSYM = 1,
    REPORT_DOOR_DLVSYM = 2,
    REPORT_DOOR_PROCADDRESS = 4,
    /* 8 and 16 are ioctl and exported symbols, which are asked for when it is reported. */
    REPORT_DOOR_TABLE = 32,
};

/* Whose functions were called. */
enum report_call { REPORT_CALL_CUDA = 1, REPORT_CALL_NVML = 2 };

extern unsigned report_doors_used;
extern unsigned report_calls_made; /* kept only while a report is wanted */
extern bool report_is_wanted;

static inline void report_door_used(enum report_door door)
{
    if (!(load_relaxed(&report_doors_used) & door))
        (void)or_relaxed(&report_doors_used, (unsigned)door);
}

void report_write_due(enum report_call call);

/* In each replaced call but those that wait or launch. */
static inline void report_look(enum report_call call)
{
    if (__builtin_expect(load_relaxed(&report_is_wanted), 0))
        report_write_due(call);
}

/* At the start of a process, and in a forked child: once the environment is read. */
void report_reset(void);

#endif
