/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs, and the index against a plain reference. */
#include "base/slab.h"

#include "base/map.h"
#include "check.h"

#define KEYS 20000
#define STEPS 300000
#define MULTIPLIER 0x9e3779b97f4a7c15ull

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void *value_of(uint64_t number)
{
    return (void *)(uintptr_t)(number + 1);
}

TEST("objects are zeroed, apart from each other, and reused after they were given back")
{
    struct slab slab = {.object_bytes = 48};
    char *objects[5000];
    for (int i = 0; i < 5000; i++) {
        objects[i] = slab_take(&slab);
        REQUIRE(objects[i]);
        for (int b = 0; b < 48; b++)
            CHECK_EQ(objects[i][b], 0);
        memset(objects[i], i & 0xff, 48);
    }
    for (int i = 0; i < 5000; i++)
        CHECK(objects[i][0] == (char)i && objects[i][47] == (char)i);
    slab_give(&slab, objects[7]);
    char *again = slab_take(&slab);
    CHECK(again == objects[7]);
    CHECK(again[0] == 0 && again[47] == 0);
    slab_finish(&slab);
    CHECK(slab.chunks == NULL && slab.free_list == NULL);
    CHECK(slab_take(&slab) != NULL);
}

TEST("an object may be as small as a pointer or fill a chunk")
{
    struct slab small = {.object_bytes = sizeof(void *)};
    for (int i = 0; i < 20000; i++)
        REQUIRE(slab_take(&small));
    struct slab large = {.object_bytes = 60000};
    for (int i = 0; i < 10; i++) {
        char *object = slab_take(&large);
        REQUIRE(object);
        memset(object, 1, 60000);
    }
    slab_finish(&small);
    slab_finish(&large);
}

TEST("an empty map holds nothing and can be finished")
{
    struct map map = {0};
    CHECK(map_get(&map, 1) == NULL);
    CHECK(map_remove(&map, 1) == NULL);
    map_finish(&map);
    map_finish(&map);
}

TEST("a put key leads to its last value until it is removed")
{
    struct map map = {0};
    CHECK_EQ(map_put(&map, 42, value_of(1)), 0);
    CHECK_EQ(map_put(&map, 42, value_of(2)), 0);
    CHECK_EQ(map.count, 1);
    CHECK(map_get(&map, 42) == value_of(2));
    CHECK(map_get(&map, 43) == NULL);
    CHECK(map_remove(&map, 43) == NULL);
    CHECK(map_remove(&map, 42) == value_of(2));
    CHECK(map_remove(&map, 42) == NULL);
    CHECK_EQ(map.count, 0);
    map_finish(&map);
}

/* Compares with an array over a small key space, spread as `spread` makes keys of numbers. */
static void compare_with_reference(uint64_t (*spread)(uint64_t number))
{
    static void *reference[KEYS];
    struct map map = {0};
    size_t count = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t number = random_next() % KEYS;
        uint64_t key = spread(number);
        switch (random_next() % 3) {
        case 0:
            REQUIRE(map_put(&map, key, value_of((uint64_t)step)) == 0);
            count += reference[number] == NULL;
            reference[number] = value_of((uint64_t)step);
            break;
        case 1:
            REQUIRE(map_remove(&map, key) == reference[number]);
            count -= reference[number] != NULL;
            reference[number] = NULL;
            break;
        default:
            REQUIRE(map_get(&map, key) == reference[number]);
        }
        REQUIRE(map.count == count);
    }
    for (uint64_t number = 0; number < KEYS; number++)
        REQUIRE(map_get(&map, spread(number)) == reference[number]);
    map_finish(&map);
}

static uint64_t as_addresses(uint64_t number)
{
    return 0x7f0000000000ull + (number << 21);
}

static uint64_t as_handles(uint64_t number)
{
    return 0xc1d00000ull << 32 | (0x5c000000u + (uint32_t)number);
}

static uint64_t inverse_of_multiplier(void)
{
    uint64_t inverse = MULTIPLIER;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - MULTIPLIER * inverse;
    return inverse;
}

/* Keys that all begin their probe at the last places of any table up to 2^12: their runs wrap. */
static uint64_t as_colliding(uint64_t number)
{
    uint64_t place = 0xffful - number % 4;
    return ((number << 44) + (place << 20) + 1) * inverse_of_multiplier();
}

TEST("300,000 random steps agree with a reference, over device addresses")
{
    compare_with_reference(as_addresses);
}

TEST("300,000 random steps agree with a reference, over object handles")
{
    compare_with_reference(as_handles);
}

TEST("probe runs that wrap around the table's end stay whole under removal")
{
    struct map map = {0};
    bool present[160] = {false};
    REQUIRE(inverse_of_multiplier() * MULTIPLIER == 1);
    for (int step = 0; step < 100000; step++) {
        uint64_t number = random_next() % 160;
        uint64_t key = as_colliding(number);
        if (random_next() % 2) {
            REQUIRE(map_put(&map, key, value_of(number)) == 0);
            present[number] = true;
        } else {
            REQUIRE(map_remove(&map, key) == (present[number] ? value_of(number) : NULL));
            present[number] = false;
        }
        uint64_t other = random_next() % 160;
        REQUIRE(map_get(&map, as_colliding(other)) == (present[other] ? value_of(other) : NULL));
    }
    CHECK_EQ(map.capacity, 256);
    map_finish(&map);
}

TEST("the largest key and the smallest are keys like others")
{
    struct map map = {0};
    CHECK_EQ(map_put(&map, UINT64_MAX, value_of(1)), 0);
    CHECK_EQ(map_put(&map, 1, value_of(2)), 0);
    CHECK(map_get(&map, UINT64_MAX) == value_of(1));
    CHECK(map_remove(&map, 1) == value_of(2));
    CHECK(map_get(&map, UINT64_MAX) == value_of(1));
    map_finish(&map);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
