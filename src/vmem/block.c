/* SPDX-License-Identifier: Apache-2.0 */
/* A bit map of units. */
#include "vmem/block.h"

static unsigned units_of(uint32_t bytes)
{
    return bytes / BLOCK_UNIT + (bytes % BLOCK_UNIT != 0);
}

static bool is_taken(const struct block *block, unsigned unit)
{
    return block->taken[unit / 64] >> unit % 64 & 1;
}

/* From `unit` on, the first that is taken or free (`wanted`); BLOCK_UNITS: none. */
static unsigned next_unit(const struct block *block, unsigned unit, bool wanted)
{
    while (unit < BLOCK_UNITS) {
        uint64_t word = wanted ? block->taken[unit / 64] : ~block->taken[unit / 64];
        word = word >> unit % 64 << unit % 64;
        if (word)
            return unit / 64 * 64 + (unsigned)__builtin_ctzll(word);
        unit = unit / 64 * 64 + 64;
    }
    return BLOCK_UNITS;
}

static unsigned find_run(const struct block *block, unsigned units)
{
    unsigned first = next_unit(block, 0, false);
    while (first < BLOCK_UNITS) {
        unsigned end = next_unit(block, first, true);
        if (end - first >= units)
            return first;
        first = next_unit(block, end, false);
    }
    return BLOCK_UNITS;
}

static void mark(struct block *block, unsigned first, unsigned units, bool taken)
{
    for (unsigned unit = first; unit < first + units; unit++) {
        uint64_t bit = (uint64_t)1 << unit % 64;
        if (taken)
            block->taken[unit / 64] |= bit;
        else
            block->taken[unit / 64] &= ~bit;
    }
    block->used_units = taken ? block->used_units + units : block->used_units - units;
}

bool block_take(struct block *block, uint32_t bytes, uint32_t *ret_offset)
{
    unsigned units = units_of(bytes);
    if (!units || units > BLOCK_UNITS - block->used_units ||
        (block->none_of && units >= block->none_of))
        return false;
    unsigned first = find_run(block, units);
    if (first == BLOCK_UNITS) {
        block->none_of = units;
        return false;
    }
    mark(block, first, units, true);
    block->asked_bytes[first] = bytes;
    block->serials[first] = ++block->last_serial;
    *ret_offset = first * BLOCK_UNIT;
    return true;
}

uint32_t block_end(struct block *block, uint32_t offset)
{
    if (offset >= BLOCK_BYTES || offset % BLOCK_UNIT)
        return 0;
    uint32_t bytes = block->asked_bytes[offset / BLOCK_UNIT];
    block->asked_bytes[offset / BLOCK_UNIT] = 0;
    return bytes;
}

void block_revive(struct block *block, struct block_part part)
{
    block->asked_bytes[part.offset / BLOCK_UNIT] = part.bytes;
}

bool block_give(struct block *block, struct block_part part)
{
    mark(block, part.offset / BLOCK_UNIT, units_of(part.bytes), false);
    block->none_of = 0;
    return block->used_units == 0;
}

bool block_find(const struct block *block, uint32_t offset, struct block_part *ret_part)
{
    if (offset >= BLOCK_BYTES)
        return false;
    for (unsigned unit = offset / BLOCK_UNIT; is_taken(block, unit); unit--) {
        uint32_t bytes = block->asked_bytes[unit];
        if (bytes) {
            *ret_part = (struct block_part){
                .offset = unit * BLOCK_UNIT, .bytes = bytes, .serial = block->serials[unit]};
            return offset - unit * BLOCK_UNIT < bytes;
        }
        if (!unit)
            break;
    }
    return false;
}
