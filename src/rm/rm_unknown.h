/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver that may take device memory in a way that is not known: classes, forms and
 * numbers of a driver that is newer than this library. What they take is told by the driver's own
 * figure for the process (rm/rm_audit.h): once for each class, and from then on at each call of
 * those that were seen to take some. So it counts, but only after it was taken. */
#ifndef VGPU_RM_RM_UNKNOWN_H
#define VGPU_RM_RM_UNKNOWN_H

#include "rm/rm_ioctl.h"

#include <stdbool.h>
#include <stdint.h>

void rm_unknown_reset(void);

/* An object of the class, which is not known as memory, was made below the device. */
void rm_unknown_object(
    int fd, uint32_t client, uint32_t device_handle, uint32_t class_id, rm_ioctl_function *next);

/* A call that could not be understood was answered. */
void rm_unknown_call(int fd, unsigned number, rm_ioctl_function *next);

/* Whether memory that no object explains was found on the device: its frees are not seen. */
bool rm_unknown_has_memory(void);

/* Where rm_unknown_call may ask for a device's figure. */
void rm_unknown_note_device(unsigned device, int fd, uint32_t client, uint32_t device_handle);

#endif
