/* SPDX-License-Identifier: Apache-2.0 */
/* What a diagnosis leaves behind: nothing. Its small program makes the region, with its
 * directories, and registries, as any program does that is the first; what was not there before
 * goes again, unless another program has come to use it meanwhile. */
#ifndef VGPU_DOCTOR_TRACES_H
#define VGPU_DOCTOR_TRACES_H

#include <limits.h>
#include <stddef.h>

#define DOCTOR_BOARDS 64

struct doctor_traces {
    char region[PATH_MAX + 16];     /* "": it is there already, or there can be none */
    char first_missing[PATH_MAX];   /* of the directories on its path; "": all are there */
    char registries[PATH_MAX];      /* the directory of the registries */
    char before[DOCTOR_BOARDS][64]; /* the names of those that are there already */
    size_t before_count;            /* above DOCTOR_BOARDS: too many to tell; all stay */
};

/* Before the small program starts. Of zeros. */
void doctor_traces_note(struct doctor_traces *ret_traces);

/* After its end, which is waited for, 1 s at most. May be another process than the one that noted,
 * where both share the structure. */
void doctor_traces_remove(const struct doctor_traces *traces);

#endif
