/* SPDX-License-Identifier: Apache-2.0 */
/* More memory than the card has, as HAMi's, vgpu-controller's and its successors' variables ask for
 * it: by a word or by a ratio; and the host memory that may back it (VGPU_HOST_POOL). */
#ifndef VGPU_CONFIG_CONFIG_OVERSUBSCRIPTION_H
#define VGPU_CONFIG_CONFIG_OVERSUBSCRIPTION_H

#include "config/config.h"

/* `lookup` as for config_read; one log line for each value that is not understood, which then asks
 * for nothing, and of VGPU_HOST_POOL gives nothing. */
void config_oversubscription_read(struct config *config, char *(*lookup)(const char *name));

/* Of all devices, in place of what the environment says; the host's memory is then bounded by the
 * cgroup and the machine alone. A ratio below CONFIG_RATIO_ONE or above the most is none. */
void config_oversubscription_set(struct config *config, uint64_t ratio);

/* "1.5" as CONFIG_RATIO_ONE times that; 0 for a ratio that is not above 1. Returns 0, or -EINVAL
 * where it is no number from 0 to CONFIG_RATIO_MOST. */
int config_parse_ratio(const char *text, uint64_t *ret_ratio) __attribute__((warn_unused_result));

#define CONFIG_RATIO_MOST 4096
#define CONFIG_IDLE_MOST_S 31536000u /* a year */

/* As config.h's oversubscription, of the container's index-th device. */
uint64_t config_oversubscription(const struct config *config, int index);

/* The host memory that may back the container's device memory; UINT64_MAX: not said. */
uint64_t config_host_pool(const struct config *config);

/* How much host memory is made ahead for device memory to move out to (VGPU_HOST_POOL_READY). */
uint64_t config_host_pool_ready(const struct config *config);

/* After how many seconds without GPU work the process's memory is moved off the card
 * (VGPU_IDLE_RELEASE); 0: never. */
uint64_t config_idle_release_s(const struct config *config);

/* How much of the time tenants that take turns with the card's memory may spend moving it
 * (VGPU_TURN_OVERHEAD). */
#define CONFIG_TURN_OVERHEAD 10u
#define CONFIG_TURN_OVERHEAD_MOST 90u
unsigned config_turn_overhead_percent(const struct config *config);

/* True where it was asked for of any device. */
bool config_oversubscribes(const struct config *config);

#endif
