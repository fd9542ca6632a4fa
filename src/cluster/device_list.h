/* SPDX-License-Identifier: Apache-2.0 */
/* A container's list of devices for NVIDIA_VISIBLE_DEVICES and CDI: each device once, in the order
 * in which it first occurs. Pure. */
#ifndef VGPU_CLUSTER_DEVICE_LIST_H
#define VGPU_CLUSTER_DEVICE_LIST_H

#include <stddef.h>

/* Moves the first of each equal pair forward; returns how many are left. */
size_t device_list_unique(const char **ids, size_t count);

/* All joined by commas; the caller frees it. NULL without memory. */
char *device_list_join(const char *const *ids, size_t count);

#endif
