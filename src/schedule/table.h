/* SPDX-License-Identifier: Apache-2.0 */
/* An index of objects by a text. The key is part of the object. Pure; not synchronised. */
#ifndef VGPU_SCHEDULE_TABLE_H
#define VGPU_SCHEDULE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Open addressing with linear probing; zero is empty. */
struct table {
    struct table_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

uint64_t table_hash(const char *text);

/* Adds an object whose key is not in the table; the key lives as long as the object is in it.
 * Returns 0 or -ENOMEM. */
int table_add(struct table *table, const char *key, void *object)
    __attribute__((warn_unused_result));

/* The two halves of table_add: room for one more object, and to put it there. */
int table_reserve(struct table *table) __attribute__((warn_unused_result));
void table_add_reserved(struct table *table, const char *key, void *object);

/* NULL where it is absent. */
void *table_get(const struct table *table, const char *key);
void *table_remove(struct table *table, const char *key);

/* The object at or behind *cursor (0: the first), which moves behind it; NULL at the end. Any
 * order. The table must not change meanwhile. */
void *table_next(const struct table *table, size_t *cursor);

void table_finish(struct table *table);

#endif
