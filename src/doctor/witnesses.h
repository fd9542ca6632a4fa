/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a command that used the GPU, and whether the limits hold in them. */
#ifndef VGPU_DOCTOR_WITNESSES_H
#define VGPU_DOCTOR_WITNESSES_H

#include "doctor/checks.h"
#include "doctor/watch.h"

enum doctor_verdict {
    VERDICT_HOLD,      /* every process that used the GPU keeps to a limit */
    VERDICT_BROKEN,    /* some process does not, or may not */
    VERDICT_UNLIMITED, /* they would, but none is set */
    VERDICT_UNUSED,    /* no process used the GPU */
};

/* A process that used the GPU, or may have. */
struct witness {
    const struct watch_image *image; /* NULL: it came and went between two looks */
    struct facts *facts;             /* its own report; NULL: it left none */
    unsigned pid;
    char command[256];
    bool limited; /* some limit is in force on a device that it met */
};

struct witnesses {
    struct witness *list; /* from malloc */
    size_t count;
    size_t seen;     /* processes, whatever they did */
    size_t left;     /* of them still there at the command's end */
    bool incomplete; /* there were more than can be kept */
};

/* Puts what was seen and the reports in `directory` together. */
void doctor_gather(
    const struct watch *watch, const char *directory, struct witnesses *ret_witnesses);
void doctor_gather_free(struct witnesses *witnesses);

/* The lines on them; what a line says of several processes alike is said once. */
enum doctor_verdict doctor_judge(struct checks *checks, struct witnesses *witnesses);

#endif
