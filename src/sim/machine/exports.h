/* SPDX-License-Identifier: Apache-2.0 */
/* A library of the simulator exports what every described driver had. What the one at hand lacks is
 * taken out of the library's own symbol table when it is loaded, so that dlsym does not find it.
 * What was bound before (a program linked against the name) stays bound. */
#ifndef VGPU_SIM_MACHINE_EXPORTS_H
#define VGPU_SIM_MACHINE_EXPORTS_H

#include <stdbool.h>

/* To be called by the library's constructor: `is_absent` judges each exported function. */
void sim_exports_hide(bool (*is_absent)(const char *name));

#endif
