/* SPDX-License-Identifier: Apache-2.0 */
/* The container's list of devices, in which the i of CUDA_DEVICE_MEMORY_LIMIT_<i> counts: the
 * UUIDs or minor numbers that the environment lists, else all devices by PCI address. A card in MIG
 * mode has its compute instances in its place. The list does not
 * depend on CUDA_VISIBLE_DEVICES, which permutes CUDA's ordinals only. */
#ifndef VGPU_DRIVER_DEVICE_LIST_H
#define VGPU_DRIVER_DEVICE_LIST_H

#include <stdbool.h>

/* Learns the devices' order from /proc/driver/nvidia, else from NVML (about 10 ms). Call it without
 * any lock, before device_list_position is needed. Cheap when done. */
void device_list_prepare(void);

/* The device `uuid` exists: where the order that was learnt does not know it (a simulated card
 * beside a real one, a card that /proc does not show), the order is learnt anew from NVML, once. As
 * device_list_prepare, outside of locks and of the driver. */
void device_list_confirm(const char *uuid);

/* Whether this thread is at it: what NVML asks the driver meanwhile comes before the order is
 * known, and so does not decide which device is which. */
bool device_list_is_learning(void);

/* For a forked child: a thread that the fork left behind may have been at it. */
void device_list_reset(void);

/* The device's place in the first of `lists` (comma separated; NULL ends them, and stands for none)
 * of which an item names a device, where every device has a place of its own: those that the list
 * does not name have the places left. Where none does, among all devices. -1 where the order of the
 * devices is needed for that and not known. */
int device_list_position(const char *const *lists, const char *uuid);

#endif
