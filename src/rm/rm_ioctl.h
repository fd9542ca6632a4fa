/* SPDX-License-Identifier: Apache-2.0 */
/* How a call reaches the resource manager: the real ioctl(2), of the C library or of another
 * library that comes before it. */
#ifndef VGPU_RM_RM_IOCTL_H
#define VGPU_RM_RM_IOCTL_H

typedef int rm_ioctl_function(int fd, unsigned long request, void *argument);

#endif
