/* SPDX-License-Identifier: Apache-2.0 */
/* An index of objects by a 64-bit key, in pages of its own. Not synchronised: the owner's lock
 * guards it. Zero is empty. */
#ifndef VGPU_BASE_MAP_H
#define VGPU_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Open addressing with linear probing; keys are any value but 0. */
struct map {
    struct map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

/* Adds key, or replaces what it led to. Returns 0 or -ENOMEM. O(1). */
int map_put(struct map *map, uint64_t key, void *value) __attribute__((warn_unused_result));

/* What key leads to, NULL where it is absent. O(1). */
void *map_get(const struct map *map, uint64_t key);

/* Removes key; returns what it led to, or NULL. O(1). */
void *map_remove(struct map *map, uint64_t key);

/* The value at or behind *cursor (0: the first), which moves behind it; NULL at the end. Any order.
 * The map must not change meanwhile. */
void *map_next(const struct map *map, size_t *cursor, uint64_t *ret_key);

void map_finish(struct map *map);

#endif
