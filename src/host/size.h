/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as people read them. */
#ifndef VGPU_HOST_SIZE_H
#define VGPU_HOST_SIZE_H

#include <stdint.h>

/* "0", "512B", "12KiB", "300MiB", "1.5GiB", "139.8GiB", "2.0TiB": at most 8 characters. Binary
 * units, rounded. Terminated. */
struct size_text {
    char text[16];
};
struct size_text size_text(uint64_t bytes);

#endif
