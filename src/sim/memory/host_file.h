/* SPDX-License-Identifier: Apache-2.0 */
/* Exported memory of the host: a file in memory, whose last page says what it is. */
#ifndef VGPU_SIM_MEMORY_HOST_FILE_H
#define VGPU_SIM_MEMORY_HOST_FILE_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stdint.h>

/* A descriptor (close-on-exec) of zeros, or -1. */
int host_file_create(uint64_t bytes, const CUmemAllocationProp *props);
/* False where the descriptor is of anything else. */
bool host_file_read(int fd, uint64_t *ret_bytes, CUmemAllocationProp *ret_props);
/* Shared pages; NULL if there is no memory. Undone by contents_drop. */
char *host_file_map(int fd, uint64_t bytes);

#endif
