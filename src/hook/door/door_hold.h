/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the driver that are not replaced: where oversubscription is on, a program gets a
 * stub for each that it looks up, which waits for the end of a halt (pace/halt.h). Without, it gets
 * the driver's own. */
#ifndef VGPU_HOOK_DOOR_DOOR_HOLD_H
#define VGPU_HOOK_DOOR_DOOR_HOLD_H

#include <stdbool.h>

/* What to answer for a function of libcuda: the same stub each time, or `real` itself where there
 * is no need for one, or the process has DOOR_HOLD_STUBS of them. Any thread. */
void *door_hold(void *real);

/* Whether a look-up of `name` may find such a function. */
bool door_hold_may(const char *name);

/* The same for what was found by such a name, which may be another library's, or NULL: then that.
 */
void *door_hold_found(void *found);

#endif
