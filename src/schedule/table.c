/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64

struct table_slot {
    uint64_t hash;
    const char *key; /* NULL: the slot is free */
    void *object;
};

/* FNV-1a, and a last mix because the low bits choose the slot. */
uint64_t table_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash ^ (hash >> 29);
}

/* The slot of the key, or the free one where it would be. There is always a free one. */
static size_t find(const struct table *table, const char *key, uint64_t hash)
{
    size_t at = hash & (table->capacity - 1);
    while (table->slots[at].key &&
           (table->slots[at].hash != hash || strcmp(table->slots[at].key, key) != 0))
        at = (at + 1) & (table->capacity - 1);
    return at;
}

static int grow(struct table *table)
{
    size_t capacity = table->capacity ? table->capacity * 2 : CAPACITY_MIN;
    struct table grown = {calloc(capacity, sizeof(*grown.slots)), capacity, table->count};
    if (!grown.slots)
        return -ENOMEM;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].key)
            grown.slots[find(&grown, table->slots[i].key, table->slots[i].hash)] = table->slots[i];
    free(table->slots);
    *table = grown;
    return 0;
}

int table_reserve(struct table *table)
{
    return (table->count + 1) * 2 > table->capacity ? grow(table) : 0;
}

void table_add_reserved(struct table *table, const char *key, void *object)
{
    uint64_t hash = table_hash(key);
    table->slots[find(table, key, hash)] = (struct table_slot){hash, key, object};
    table->count++;
}

int table_add(struct table *table, const char *key, void *object)
{
    int result = table_reserve(table);
    if (!result)
        table_add_reserved(table, key, object);
    return result;
}

void *table_get(const struct table *table, const char *key)
{
    if (!table->count)
        return NULL;
    return table->slots[find(table, key, table_hash(key))].object;
}

void *table_remove(struct table *table, const char *key)
{
    if (!table->count)
        return NULL;
    size_t mask = table->capacity - 1, hole = find(table, key, table_hash(key));
    void *object = table->slots[hole].object;
    if (!table->slots[hole].key)
        return NULL;
    /* What was pushed past the hole moves back, so that a search never ends too early. */
    for (size_t at = (hole + 1) & mask; table->slots[at].key; at = (at + 1) & mask) {
        size_t home = table->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole] = (struct table_slot){0};
    table->count--;
    return object;
}

void *table_next(const struct table *table, size_t *cursor)
{
    while (*cursor < table->capacity) {
        const struct table_slot *slot = &table->slots[(*cursor)++];
        if (slot->key)
            return slot->object;
    }
    return NULL;
}

void table_finish(struct table *table)
{
    free(table->slots);
    *table = (struct table){0};
}
