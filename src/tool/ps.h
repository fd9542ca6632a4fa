/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu ps says of a collection. */
#ifndef VGPU_TOOL_PS_H
#define VGPU_TOOL_PS_H

#include "tool/collect.h"

/* What a container is called: its pod's namespace, pod and container, as far as they are known, or
 * its region's file. Not made fit to be printed. Lasts until the next call of the thread. */
const char *ps_container_name(const struct collected_container *container);

/* In one word: how the container is on the device. */
const char *ps_state(
    const struct collected_container *container, const struct collected_device *device);

/* "rm", "api", "-"; "launch", "channel", "-". */
const char *ps_ledger(unsigned ledger);
const char *ps_gate(enum collected_gate gate);

/* On stdout: as a table, no wider than `width` columns (0: as wide as it is); as JSON. Return 0 or
 * -ENOMEM. */
int ps_print(const struct collection *collection, unsigned width);
void ps_print_json(const struct collection *collection);

#endif
