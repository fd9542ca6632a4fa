/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a slot's state word (vgpu_slot.state). */
#ifndef VGPU_REGION_SLOT_WORD_H
#define VGPU_REGION_SLOT_WORD_H

#include <stdint.h>

static inline unsigned slot_word_state(uint64_t word)
{
    return (unsigned)(word & 3);
}

static inline int slot_word_pid(uint64_t word)
{
    return (int)((uint32_t)word >> 2);
}

#endif
