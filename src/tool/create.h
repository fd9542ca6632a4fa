/* SPDX-License-Identifier: Apache-2.0 */
/* Making a container's region before its programs do. */
#ifndef VGPU_TOOL_CREATE_H
#define VGPU_TOOL_CREATE_H

/* Makes the region at `file`, or NULL: that which the environment means, anew and with the limits
 * of the environment, and says so on stdout. Returns the exit status; where it is not 0, one line a
 * reason is on stderr, and nothing was changed: TOOL_USAGE where a limit is not understood,
 * TOOL_FAILED where processes live in it, or it cannot be made. */
int create_region(const char *file);

#endif
