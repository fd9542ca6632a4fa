/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu ps says of a collection. */
#ifndef VGPU_TOOL_PS_H
#define VGPU_TOOL_PS_H

#include "collect/collect.h"
#include "collect/collect_words.h"

/* On stdout: as a table, no wider than `width` columns (0: as wide as it is); as JSON. Return 0 or
 * -ENOMEM. */
int ps_print(const struct collection *collection, unsigned width);
void ps_print_json(const struct collection *collection);

#endif
