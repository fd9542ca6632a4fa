/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu doctor -- COMMAND: whether the limits hold in the processes of a command. */
#ifndef VGPU_DOCTOR_COMMAND_H
#define VGPU_DOCTOR_COMMAND_H

#include <stdbool.h>

struct doctor_options {
    bool json;
    bool verdict_status; /* the exit status is the verdict's, not the command's */
    const char *output;  /* a file; NULL: stderr */
    char **command;
};

/* Runs the command and says at its end what was found. Returns the exit status. */
int doctor_command(const struct doctor_options *options);

#endif
