/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that hold for this process: those of OVERRIDE_PATH (config/override.h), then its
 * own, or, where it has lost the container's (a shell that was opened later, by ssh or exec),
 * beside them those of the container's process 1. */
#ifndef VGPU_CONFIG_CONFIG_PROCESS_H
#define VGPU_CONFIG_CONFIG_PROCESS_H

#include "config/config.h"

/* Reads OVERRIDE_PATH, and finds out whose variables hold else; before config_process_lookup.
 * Process 1's do where
 * - no limit, region or device list is set in this process's environment,
 * - process 1 has limits or a region, and is in the same PID and mount namespace,
 * - process 1 runs as root or as our own user: another's word is not taken.
 * Reads files of /proc/1 only where the first is so. One thread at a time. */
void config_process_look(void);

/* getenv's contract, after the file's, and with process 1's where they hold and this process has
 * none of the name. */
char *config_process_lookup(const char *name);

/* config_read for this process, with config_oversubscription_read, config_names_check and
 * config_accepted_check. `secure`: the process has more rights than its caller (set-user-ID), and
 * takes no environment's word. */
void config_process_read(struct config *config, bool secure);

/* Whether NVIDIA's driver, which asks the process's own environment in cuInit, makes each launch
 * wait for its kernel (CUDA_LAUNCH_BLOCKING; the CUDA programming guide, "CUDA Environment
 * Variables"). Not for a set-user-ID program. */
bool config_process_launches_block(void);

#endif
