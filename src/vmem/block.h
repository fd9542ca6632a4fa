/* SPDX-License-Identifier: Apache-2.0 */
/* A block of 2 MiB that small allocations share, as the driver's own blocks: in units of 512 bytes,
 * first fit. Pure: no clock, no lock, no driver; the caller has the storage and the lock. */
#ifndef VGPU_VMEM_BLOCK_H
#define VGPU_VMEM_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_BYTES (2u << 20)
#define BLOCK_UNIT 512u /* the least alignment that cuMemAlloc's memory has (H200, 580.159.04) */
#define BLOCK_UNITS (BLOCK_BYTES / BLOCK_UNIT)

/* All zero: empty. */
struct block {
    unsigned used_units;
    unsigned none_of;                  /* no run of so many free units is left; 0: not known */
    uint64_t taken[BLOCK_UNITS / 64];  /* a bit for each unit */
    uint32_t asked_bytes[BLOCK_UNITS]; /* at the first unit of an allocation that lives; else 0 */
    uint32_t serials[BLOCK_UNITS];     /* likewise: the how manieth it is in this block */
    uint32_t last_serial;
};

/* What an offset into the block lies in. */
struct block_part {
    uint32_t offset, bytes; /* as it was asked for */
    uint32_t serial;        /* no other allocation of the block ever had it; from 1 */
};

/* Takes room for `bytes` (1 to BLOCK_BYTES). False where there is none. */
bool block_take(struct block *block, uint32_t bytes, uint32_t *ret_offset)
    __attribute__((warn_unused_result));

/* Ends the allocation that begins at the offset: block_find no longer finds it, but its room is not
 * given out before block_give. Returns its bytes; 0 where none begins there. */
uint32_t block_end(struct block *block, uint32_t offset);

/* The allocation that was ended lives on. */
void block_revive(struct block *block, struct block_part part);

/* Gives the room of an allocation that was ended back. True where the block is empty then. */
bool block_give(struct block *block, struct block_part part);

/* False where no allocation that lives has the byte. */
bool block_find(const struct block *block, uint32_t offset, struct block_part *ret_part);

#endif
