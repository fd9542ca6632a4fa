/* SPDX-License-Identifier: Apache-2.0 */
/* What a card has free, as NVML tells. */
#ifndef VGPU_HOST_CARD_ROOM_H
#define VGPU_HOST_CARD_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/* Of the device with that UUID ("GPU-..." or "MIG-..."). False where it is not known: without NVML,
 * or it does not answer. Loads NVML's library at the first call; one thread. */
bool card_free_bytes(const char *uuid, uint64_t *ret_bytes) __attribute__((warn_unused_result));

#endif
