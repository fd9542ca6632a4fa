/* SPDX-License-Identifier: Apache-2.0 */
/* Showing and changing the limits of a region, in words: what the tools share.
 */
#ifndef VGPU_HOST_LIMITS_H
#define VGPU_HOST_LIMITS_H

#include "region/region_set.h"
#include "host/choose.h"
#include "host/living.h"
#include "host/release.h"

/* Parse an option's value; `option` is for the line that refuses it. Return 0 or TOOL_USAGE. */
int limits_parse_memory(const char *option, const char *text, struct region_change *change);
int limits_parse_cores(const char *option, const char *text, struct region_change *change);
int limits_parse_soft_cores(const char *option, const char *text, struct region_change *change);
int limits_parse_priority(const char *option, const char *text, struct region_change *change);
int limits_parse_device(const char *option, const char *text, int *ret_device);

/* Device memory that a CUDA context takes by itself, about, in bytes: 518 MiB on an H200 and 520
 * MiB on an H100 (driver 580.159.04). Other cards need less. */
#define LIMITS_CONTEXT_BYTES (520ull << 20)

/* One line on stderr where a memory limit leaves no room for a context; 0 is no limit. */
void limits_warn_of_little_memory(uint64_t limit_bytes);

/* One line on stderr where a soft limit lets nothing rise above the compute limit; each 0: none.
 * `number` may be REGION_ALL_DEVICES. */
void limits_warn_of_vain_soft_limit(int number, unsigned soft_percent, unsigned core_percent);

/* "2 bytes", "612 MiB", "2.0 GiB". */
void limits_print_size(char *buffer, size_t size, uint64_t bytes);

/* Which region it is, in a line on stdout. */
void limits_print_region(const struct chosen_region *chosen);

/* Why a region cannot be changed (-errno of region_set_*), in a line. Returns the exit status. */
int limits_refuse(const struct chosen_region *chosen, int error);

/* Why a device's limits cannot be changed or shown, `count` being how many there are. Likewise. */
int limits_refuse_device(const struct chosen_region *chosen, int device, int count, int error);

/* What is odd about a change that was made, on stderr; `change` NULL: nothing was. */
void limits_warn(int number, const struct region_look *look, const struct region_change *change);

/* Changes the limits and says on stdout what holds now, and on stderr where more memory is in use
 * than that, the memory is too little for a context, or a soft limit has no effect. Returns the
 * exit status; where it is not 0, one line says why. */
int limits_change(struct chosen_region *chosen, int device, const struct region_change *change);

/* As limits_change, with what holds as JSON. */
int limits_change_json(
    struct chosen_region *chosen, int device, const struct region_change *change);

/* What was done about a pause, whom it reached, and what holds now, as JSON; `command` is the one
 * that did it. `release`: what became of its memory; NULL: none was to move. */
void limits_pause_json(const char *command, const struct chosen_region *chosen,
    const struct pause_outcome *outcome, const struct release_outcome *release);

/* What holds, on stdout. Returns the exit status, likewise. */
int limits_print(struct chosen_region *chosen);

#endif
