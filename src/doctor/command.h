/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu doctor -- COMMAND: whether the limits hold in the processes of a command. */
#ifndef VGPU_DOCTOR_COMMAND_H
#define VGPU_DOCTOR_COMMAND_H

#include "host/child.h"
#include "doctor/doctor.h"
#include "doctor/watch.h"

struct doctor_options {
    bool json;
    bool verdict_status; /* the exit status is the verdict's, not the command's */
    const char *output;  /* a file; NULL: stderr */
    char **command;
};

enum doctor_verdict {
    VERDICT_HOLD,      /* every process that used the GPU keeps to a limit */
    VERDICT_BROKEN,    /* some process does not, or may not */
    VERDICT_UNLIMITED, /* they would, but none is set */
    VERDICT_UNUSED,    /* nobody used the GPU */
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

/* Runs the command and says at its end what was found. Returns the exit status. */
int doctor_command(const struct doctor_options *options);

/* Puts what was seen and the reports in `directory` together. */
void doctor_gather(
    const struct watch *watch, const char *directory, struct witnesses *ret_witnesses);
void doctor_gather_free(struct witnesses *witnesses);

/* The lines on them; what a line says of several processes alike is said once. */
enum doctor_verdict doctor_judge(struct checks *checks, struct witnesses *witnesses);

#endif
