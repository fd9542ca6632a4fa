/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs over anonymous mappings. */
#include "base/slab.h"

#include "base/pages.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES ((size_t)64 * 1024)

struct slab_chunk {
    struct slab_chunk *next;
    uint64_t pad;
};

static void slab_grow(struct slab *slab)
{
    struct slab_chunk *chunk = pages_map(CHUNK_BYTES);
    if (!chunk)
        return;
    chunk->next = slab->chunks;
    slab->chunks = chunk;
    char *object = (char *)(chunk + 1);
    char *end = (char *)chunk + CHUNK_BYTES;
    for (; object + slab->object_bytes <= end; object += slab->object_bytes) {
        *(void **)object = slab->free_list;
        slab->free_list = object;
    }
}

void *slab_take(struct slab *slab)
{
    if (!slab->free_list)
        slab_grow(slab);
    void *object = slab->free_list;
    if (!object)
        return NULL;
    slab->free_list = *(void **)object;
    memset(object, 0, slab->object_bytes);
    return object;
}

void slab_give(struct slab *slab, void *object)
{
    *(void **)object = slab->free_list;
    slab->free_list = object;
}

void slab_finish(struct slab *slab)
{
    for (struct slab_chunk *chunk = slab->chunks; chunk;) {
        struct slab_chunk *next = chunk->next;
        munmap(chunk, CHUNK_BYTES);
        chunk = next;
    }
    slab->chunks = NULL;
    slab->free_list = NULL;
}
