/* SPDX-License-Identifier: Apache-2.0 */
/* Small allocations in a block of 2 MiB: alignment, room, what an address lies in; and, over random
 * allocations and frees, that none overlaps another and that no more blocks are in use than a plain
 * first fit of units needs. */
#include "vmem/block.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

TEST("allocations begin at multiples of 512 bytes and lie behind each other")
{
    static struct block block;
    uint32_t offset = 1;
    CHECK(block_take(&block, 1, &offset));
    CHECK_EQ(offset, 0);
    CHECK(block_take(&block, 513, &offset));
    CHECK_EQ(offset, 512);
    CHECK(block_take(&block, 512, &offset));
    CHECK_EQ(offset, 512 + 1024);
    CHECK_EQ(block.used_units, 4);
}

TEST("a block is filled to its last unit, and its room is had again")
{
    static struct block block;
    uint32_t offset;
    for (unsigned i = 0; i < BLOCK_UNITS; i++)
        REQUIRE(block_take(&block, BLOCK_UNIT, &offset) && offset == i * BLOCK_UNIT);
    CHECK(!block_take(&block, 1, &offset));
    CHECK_EQ(block_end(&block, 77 * BLOCK_UNIT), BLOCK_UNIT);
    CHECK(!block_take(&block, 1, &offset)); /* it is ended, but not given back yet */
    CHECK(!block_give(&block, (struct block_part){.offset = 77 * BLOCK_UNIT, .bytes = BLOCK_UNIT}));
    CHECK(!block_take(&block, BLOCK_UNIT + 1, &offset));
    CHECK(block_take(&block, 1, &offset));
    CHECK_EQ(offset, 77 * BLOCK_UNIT);
}

TEST("one allocation may have the whole block, and none has more")
{
    static struct block block;
    uint32_t offset;
    CHECK(!block_take(&block, 0, &offset));
    CHECK(!block_take(&block, BLOCK_BYTES + 1, &offset));
    CHECK(block_take(&block, BLOCK_BYTES, &offset));
    CHECK_EQ(block_end(&block, 0), BLOCK_BYTES);
    CHECK(block_give(&block, (struct block_part){.bytes = BLOCK_BYTES}));
}

TEST("an address is found by any byte that was asked for, and by none behind it")
{
    static struct block block;
    struct block_part part;
    uint32_t first, second;
    CHECK(block_take(&block, 1000, &first));
    CHECK(block_take(&block, 3000, &second));
    CHECK(block_find(&block, first + 999, &part));
    CHECK_EQ(part.offset, first);
    CHECK_EQ(part.bytes, 1000);
    CHECK(!block_find(&block, first + 1000, &part));
    CHECK(block_find(&block, second, &part));
    CHECK(block_find(&block, second + 2999, &part));
    CHECK_EQ(part.offset, second);
    CHECK(!block_find(&block, second + 3072, &part));
    CHECK(!block_find(&block, BLOCK_BYTES, &part));
}

TEST("two allocations never have the same number, at the same place neither")
{
    static struct block block;
    struct block_part first, second;
    uint32_t offset;
    CHECK(block_take(&block, 1000, &offset));
    CHECK(block_find(&block, offset, &first));
    CHECK_EQ(block_end(&block, offset), 1000);
    CHECK(block_give(&block, first));
    CHECK(block_take(&block, 1000, &offset));
    CHECK(block_find(&block, offset, &second));
    CHECK_EQ(second.offset, first.offset);
    CHECK(first.serial && second.serial && first.serial != second.serial);
}

TEST("what is ended is not found, and lives on where it is revived")
{
    static struct block block;
    struct block_part part;
    uint32_t offset;
    CHECK(block_take(&block, 700, &offset));
    CHECK_EQ(block_end(&block, offset + 1), 0);
    CHECK_EQ(block_end(&block, offset + 512), 0);
    CHECK_EQ(block_end(&block, BLOCK_BYTES), 0);
    CHECK_EQ(block_end(&block, offset), 700);
    CHECK_EQ(block_end(&block, offset), 0);
    CHECK(!block_find(&block, offset, &part));
    block_revive(&block, (struct block_part){.offset = offset, .bytes = 700});
    CHECK(block_find(&block, offset + 699, &part));
    CHECK_EQ(block_end(&block, offset), 700);
    CHECK(block_give(&block, (struct block_part){.offset = offset, .bytes = 700}));
}

/* ---- random allocations, beside a model that has one byte for each unit ---- */

#define BLOCKS 64
#define LIVE 4000

static uint64_t state = 88172645463325252ull;

static uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Most are small, as those of programs are; some are near 1 MiB. */
static uint32_t random_bytes(void)
{
    unsigned power = (unsigned)(random_number() % 20);
    return (uint32_t)(random_number() % (1u << power)) + 1;
}

struct live {
    unsigned block;
    struct block_part part;
};

static struct block blocks[BLOCKS];
static unsigned char model[BLOCKS][BLOCK_UNITS];
static struct live lives[LIVE];
static unsigned live_count;

static unsigned units(uint32_t bytes)
{
    return (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT;
}

/* First fit, one unit after the other. */
static bool model_place(uint32_t bytes, unsigned *ret_block, unsigned *ret_unit)
{
    for (unsigned b = 0; b < BLOCKS; b++) {
        unsigned run = 0;
        for (unsigned u = 0; u < BLOCK_UNITS; u++) {
            run = model[b][u] ? 0 : run + 1;
            if (run == units(bytes)) {
                *ret_block = b;
                *ret_unit = u + 1 - run;
                return true;
            }
        }
    }
    return false;
}

static void allocate(void)
{
    uint32_t bytes = random_bytes(), offset = 0;
    unsigned block = 0, wanted_block = 0, wanted_unit = 0;
    bool fits = model_place(bytes, &wanted_block, &wanted_unit);
    while (block < BLOCKS && !block_take(&blocks[block], bytes, &offset))
        block++;
    REQUIRE(fits == (block < BLOCKS));
    if (!fits)
        return;
    REQUIRE(block == wanted_block && offset == wanted_unit * BLOCK_UNIT);
    memset(&model[block][wanted_unit], 1, units(bytes));
    lives[live_count++] = (struct live){block, {.offset = offset, .bytes = bytes}};
}

static void release(void)
{
    struct live *live = &lives[random_number() % live_count];
    struct block *block = &blocks[live->block];
    struct block_part part;
    REQUIRE(block_find(
                block, live->part.offset + (uint32_t)(random_number() % live->part.bytes), &part) &&
            part.offset == live->part.offset && part.bytes == live->part.bytes);
    REQUIRE(block_end(block, part.offset) == part.bytes);
    memset(&model[live->block][part.offset / BLOCK_UNIT], 0, units(part.bytes));
    bool empty = true;
    for (unsigned u = 0; u < BLOCK_UNITS; u++)
        empty &= !model[live->block][u];
    REQUIRE(block_give(block, part) == empty);
    *live = lives[--live_count];
}

TEST("over random allocations and frees it is a first fit of units, to the unit")
{
    for (unsigned step = 0; step < 40000; step++) {
        bool grow = live_count < LIVE && random_number() % 100 < (step / 4000 % 2 ? 40 : 60);
        if (grow || !live_count)
            allocate();
        else
            release();
    }
    while (live_count)
        release();
    for (unsigned b = 0; b < BLOCKS; b++)
        CHECK_EQ(blocks[b].used_units, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
