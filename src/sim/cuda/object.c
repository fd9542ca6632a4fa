/* SPDX-License-Identifier: Apache-2.0 */
/* The table of live handles. */
#include "sim/cuda/cuda_sim.h"

#define OBJECT_BUCKETS 4096
static struct object *buckets[OBJECT_BUCKETS];

static struct object **bucket_of(const void *handle)
{
    return &buckets[((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 52];
}

void object_add(struct object *object, enum object_kind kind)
{
    struct object **bucket = bucket_of(object);

    object->kind = kind;
    object->next = *bucket;
    *bucket = object;
}

void object_remove(struct object *object)
{
    struct object **at = bucket_of(object);

    while (*at && *at != object)
        at = &(*at)->next;
    if (*at)
        *at = object->next;
}

void *object_find(const void *handle, enum object_kind kind)
{
    struct object *object = *bucket_of(handle);

    while (object && (const void *)object != handle)
        object = object->next;
    return object && object->kind == kind ? object : NULL;
}

CUresult object_visit(enum object_kind kind, CUresult (*visit)(void *object))
{
    CUresult r = CUDA_SUCCESS;

    for (size_t i = 0; i < OBJECT_BUCKETS; i++) {
        for (struct object *at = buckets[i]; at && r == CUDA_SUCCESS; at = at->next) {
            if (at->kind == kind)
                r = visit(at);
        }
    }
    return r;
}
