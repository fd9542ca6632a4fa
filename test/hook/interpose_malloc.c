/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer that replaces malloc and finds the next one by dlsym at the first call, as heap
 * checkers do: what dlsym itself asks for meanwhile comes from a little memory of its own, and a
 * dlsym that needs much, or goes round, ends the program. */
#include <dlfcn.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned test_malloc_calls(void);

#define EARLY_BYTES 4096
#define DEPTH_MAX 8

static alignas(16) char early[EARLY_BYTES];
static size_t early_used;
static unsigned calls;
static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);

unsigned test_malloc_calls(void)
{
    return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

static void *take_early(size_t bytes)
{
    size_t rounded = (bytes + 15) / 16 * 16;
    if (rounded > EARLY_BYTES - early_used)
        _exit(99);
    early_used += rounded;
    return early + early_used - rounded;
}

static int is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + EARLY_BYTES;
}

/* False while the next functions are being looked up. */
static int ready(void)
{
    static unsigned depth;
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&next_free, __ATOMIC_ACQUIRE))
        return 1;
    if (depth) {
        if (++depth > DEPTH_MAX)
            _exit(98);
        return 0;
    }
    depth = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    void (*found)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    if (!next_malloc || !next_calloc || !next_realloc || !found)
        _exit(97);
    __atomic_store_n(&next_free, found, __ATOMIC_RELEASE);
    return 1;
}

void *malloc(size_t bytes)
{
    return ready() ? next_malloc(bytes) : take_early(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return ready() ? next_calloc(count, bytes) : take_early(count * bytes);
}

void *realloc(void *memory, size_t bytes)
{
    if (!is_early(memory))
        return ready() ? next_realloc(memory, bytes) : take_early(bytes);
    void *moved = malloc(bytes);
    if (moved)
        memcpy(moved, memory, bytes);
    return moved;
}

void free(void *memory)
{
    if (memory && !is_early(memory) && ready())
        next_free(memory);
}
