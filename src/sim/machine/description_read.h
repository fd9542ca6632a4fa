/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and sizes of a description. False where the whole text is not one. */
#ifndef VGPU_SIM_MACHINE_DESCRIPTION_READ_H
#define VGPU_SIM_MACHINE_DESCRIPTION_READ_H

#include <stdbool.h>
#include <stdint.h>

/* A number in [low, high]; 0x for hexadecimal. */
bool sim_read_number(const char *text, uint64_t low, uint64_t high, uint32_t *ret_number);

/* 80GiB, 80G, 80g, 512MiB, 1.5g, plain bytes. */
bool sim_read_size(const char *text, uint64_t *ret_bytes);

/* INNER:OUTER */
bool sim_read_pid_pair(const char *text, uint32_t *ret_inner, uint32_t *ret_outer);

#endif
