/* SPDX-License-Identifier: Apache-2.0 */
/* What the names in the environment say, where config_read can only look up those it knows: a limit
 * whose index cannot be understood must not be lost. */
#ifndef VGPU_CONFIG_CONFIG_NAMES_H
#define VGPU_CONFIG_CONFIG_NAMES_H

#include "config/config.h"

/* Reports each variable for a limit or oversubscription whose index is not a number from 0 to 63 in
 * plain decimal (CUDA_DEVICE_MEMORY_LIMIT_64, _01, _-1, _x), and a LIBCUDA_LOG_LEVEL or
 * LOGGER_LEVEL that is not understood, in one log line each. Nobody can tell which device such a
 * memory limit was meant for: the un-indexed limit is then invalid, and every device without one of
 * its own is full. `environment` as environ(7); NULL is an empty one. */
void config_names_check(struct config *config, char *const *environment);

#endif
