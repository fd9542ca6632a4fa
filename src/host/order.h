/* SPDX-License-Identifier: Apache-2.0 */
/* An order to a whole container: what `vgpu pause` and `vgpu resume` share. */
#ifndef VGPU_HOST_ORDER_H
#define VGPU_HOST_ORDER_H

#include "host/choose.h"

#include <stdbool.h>

struct order {
    const char *command; /* "pause" */
    const char *usage;   /* what --help says */
    bool paused;         /* what the container is to be */
};

/* Parses the command line, gives the order and says what holds now. Returns the exit status; where
 * it is not 0, one line says why. */
int order_give(const struct order *order, int argc, char **argv);

/* Gives a pause or its end to the region that is chosen, and likewise. Waits for no program: what
 * runs on the GPU is off it some 10 ms later. Where no process lives in the region there is none
 * to pause: nothing is changed, and `empty_status` is returned after one line. */
int order_pause(const struct region_choice *choice, bool paused, int empty_status);

#endif
