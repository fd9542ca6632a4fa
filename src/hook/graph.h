/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs that can be launched will take. */
#ifndef VGPU_HOOK_GRAPH_H
#define VGPU_HOOK_GRAPH_H

void graph_reset(void);

#endif
