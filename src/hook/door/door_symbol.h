/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_HOOK_DOOR_DOOR_SYMBOL_H
#define VGPU_HOOK_DOOR_DOOR_SYMBOL_H

#include <stdbool.h>

/* Another copy of this library (libvgpu.so beside libvgpu-control.so, say) comes before this one in
 * the process and does the work: dlsym, dlvsym and ioctl pass everything on. Known from the load
 * on. */
extern bool door_symbol_is_spare;

#endif
