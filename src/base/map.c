/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with linear probing, over anonymous mappings. */
#include "base/map.h"

#include "base/pages.h"

#include <errno.h>
#include <sys/mman.h>

#define MAP_FIRST_CAPACITY 256

struct map_entry {
    uint64_t key; /* 0: empty */
    void *value;
};

static size_t place_of(uint64_t key, size_t capacity)
{
    return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (capacity - 1);
}

static struct map_entry *entry_of(const struct map *map, uint64_t key)
{
    size_t at = place_of(key, map->capacity);
    while (map->entries[at].key && map->entries[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->entries[at];
}

static int map_grow(struct map *map)
{
    struct map grown = {
        .capacity = map->capacity ? map->capacity * 2 : MAP_FIRST_CAPACITY, .count = map->count};
    grown.entries = pages_map(grown.capacity * sizeof(struct map_entry));
    if (!grown.entries)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].key)
            *entry_of(&grown, map->entries[i].key) = map->entries[i];
    }
    /* A signal's handler that calls exit may have interrupted this, and look things up: at each
     * instant the table stands, and is as large as it is said to be. */
    struct map former = *map;
    map->entries = grown.entries;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    map->capacity = grown.capacity;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    map_finish(&former);
    return 0;
}

int map_put(struct map *map, uint64_t key, void *value)
{
    if ((map->count + 1) * 4 > map->capacity * 3) {
        int error = map_grow(map);
        if (error)
            return error;
    }
    struct map_entry *entry = entry_of(map, key);
    map->count += !entry->key;
    entry->key = key;
    entry->value = value;
    return 0;
}

void *map_get(const struct map *map, uint64_t key)
{
    if (!map->capacity)
        return NULL;
    const struct map_entry *entry = entry_of(map, key);
    return entry->key ? entry->value : NULL;
}

/* Moves later entries of the probe run back over the gap, so that no mark of removal is needed. */
void *map_remove(struct map *map, uint64_t key)
{
    if (!map->capacity)
        return NULL;
    struct map_entry *entry = entry_of(map, key);
    if (!entry->key)
        return NULL;
    void *value = entry->value;
    size_t mask = map->capacity - 1, gap = (size_t)(entry - map->entries);
    for (size_t at = (gap + 1) & mask; map->entries[at].key; at = (at + 1) & mask) {
        size_t home = place_of(map->entries[at].key, map->capacity);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            map->entries[gap] = map->entries[at];
            gap = at;
        }
    }
    map->entries[gap].key = 0;
    map->count--;
    return value;
}

void *map_next(const struct map *map, size_t *cursor, uint64_t *ret_key)
{
    for (; *cursor < map->capacity; (*cursor)++) {
        const struct map_entry *entry = &map->entries[*cursor];
        if (entry->key) {
            (*cursor)++;
            *ret_key = entry->key;
            return entry->value;
        }
    }
    return NULL;
}

void map_finish(struct map *map)
{
    if (map->entries)
        munmap(map->entries, map->capacity * sizeof(struct map_entry));
    *map = (struct map){0};
}
