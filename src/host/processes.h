/* SPDX-License-Identifier: Apache-2.0 */
/* A container's processes in words. */
#ifndef VGPU_HOST_PROCESSES_H
#define VGPU_HOST_PROCESSES_H

#include "host/choose.h"

/* A line on stdout for each process and device of which it holds memory, by kind. To be called
 * after limits_print, which frees the slots of the dead. Returns the exit status; where it is not
 * 0, one line says why. */
int processes_print(struct chosen_region *chosen);

#endif
