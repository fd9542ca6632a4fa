/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing a container, and which of its processes that reaches. */
#ifndef VGPU_HOST_LIVING_H
#define VGPU_HOST_LIVING_H

#include "region/region_set.h"
#include "host/choose.h"

#define LIVING_SHOWN 16

/* Processes of a region that live: those that have used the GPU, as the others have no slot. */
struct living {
    unsigned count; /* of all; of the first LIVING_SHOWN there is more */
    struct living_process {
        int pid;           /* in the PID namespace of its container */
        char command[160]; /* fit to be printed */
    } shown[LIVING_SHOWN];
};

/* Takes no lock and changes nothing. Returns 0 or -errno. */
int living_read(const struct chosen_region *chosen, struct living *ret_living)
    __attribute__((warn_unused_result));

/* "2 processes: 6210 (python3), 6216 (vgpu-load)", a line on stdout. */
void living_print(const struct living *living);

struct pause_outcome {
    bool was;   /* it was paused before */
    bool empty; /* there was no process to pause: nothing was changed */
    struct region_state state;
    struct living living;
};

/* Pauses the container or lets it go on; memory that a pause moved away is ordered back, and not
 * waited for. Returns 0, or -errno with nothing done: -EBUSY where it may be checkpointed, and is
 * to be restored first (release_end). */
int living_pause(struct chosen_region *chosen, bool paused, struct pause_outcome *ret_outcome)
    __attribute__((warn_unused_result));

/* What is, before an order. Returns 0 or -errno. */
int living_look(struct chosen_region *chosen, struct pause_outcome *ret_outcome)
    __attribute__((warn_unused_result));

/* Where there was no process to pause: one line on stderr. */
void living_refuse_empty(const struct chosen_region *chosen, const struct pause_outcome *outcome);

#endif
