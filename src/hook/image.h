/* SPDX-License-Identifier: Apache-2.0 */
/* API ledger: what a module's image says that it will take on the device. */
#ifndef VGPU_HOOK_IMAGE_H
#define VGPU_HOOK_IMAGE_H

#include <stdint.h>

/* Bytes of variables (and, of a cubin, code) that loading the image takes at least: of PTX text by
 * its .global and .const declarations, of a cubin by its ELF sections; 0 of anything else, as of a
 * fat binary, whose parts may be compressed. The image is read as the driver reads it: it must be
 * one. */
uint64_t image_device_bytes(const void *image);

#endif
