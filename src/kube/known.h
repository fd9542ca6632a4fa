/* SPDX-License-Identifier: Apache-2.0 */
/* Which objects of a collection a watch has reported: name, UID and version of each (about 150
 * bytes an object), to find at a new list what has gone meanwhile. Pure. */
#ifndef VGPU_KUBE_KNOWN_H
#define VGPU_KUBE_KNOWN_H

#include <stdbool.h>
#include <stddef.h>

/* Longer versions are not kept: the object then counts as changed at each list. */
#define KNOWN_VERSION_BYTES 24

struct known_object {
    struct known_object *next;
    unsigned round; /* of the list that named it last */
    char version[KNOWN_VERSION_BYTES];
    char *namespace_name, *uid; /* behind the name, in the same memory */
    char name[];
};

/* All zero: empty. */
struct known {
    struct known_object **buckets;
    size_t bucket_count, count;
};

/* NULL where it is not known. */
struct known_object *known_find(
    const struct known *known, const char *namespace_name, const char *name);

/* Adds one that is not there. NULL: no memory. */
struct known_object *known_add(
    struct known *known, const char *namespace_name, const char *name, const char *uid);

void known_remove(struct known *known, struct known_object *object);

void known_set_version(struct known_object *object, const char *version);

/* Removes all whose round is not this one; `gone` is called for each before. */
void known_sweep(struct known *known, unsigned round,
    void (*gone)(void *context, const struct known_object *object), void *context);

void known_finish(struct known *known);

#endif
