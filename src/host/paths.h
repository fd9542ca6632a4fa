/* SPDX-License-Identifier: Apache-2.0 */
/* Where this build's or installation's files lie. */
#ifndef VGPU_HOST_PATHS_H
#define VGPU_HOST_PATHS_H

#include <stddef.h>

/* The absolute path of `name` ("libvgpu.so", "sim/libcuda.so.1"): beside the running vgpu (a build
 * directory), else in the installation's library directory. Returns 0 or -ENOENT. */
int path_find(const char *name, char *buffer, size_t size) __attribute__((warn_unused_result));

#endif
