/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of `vgpu run` that are accepted, and most likely are not what was meant. */
#ifndef VGPU_TOOL_RUN_WARN_H
#define VGPU_TOOL_RUN_WARN_H

/* One line on stderr for each memory size of the list that leaves no room for a context; NULL: no
 * list. */
void run_warn_of_memory(const char *list);

/* One line on stderr for each soft limit in the environment, which `vgpu run` has set, that has no
 * effect. */
void run_warn_of_soft_limits(void);

#endif
