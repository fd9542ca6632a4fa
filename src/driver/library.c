/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen and dlsym of the C library, found by a walk: they live in libdl before glibc 2.34, which
 * the program may not have loaded, and their names are doors of ours. */
#include "driver/library.h"

#include "base/atomic.h"
#include "base/elf.h"

#include <dlfcn.h>

void *library_next_function(const char *name)
{
    return elf_next_function(name, (const void *)library_next_function);
}

static void *libc_function(const char *name, void **cache)
{
    void *function = load_acquire(cache);
    if (!function) {
        function = elf_libc_function(name);
        store_release(cache, function);
    }
    return function;
}

void *library_open(const char *soname, int load)
{
    static void *cache;
    void *(*open)(const char *, int) = libc_function("dlopen", &cache);
    if (!open)
        return NULL;
    void *library = open(soname, RTLD_NOW | RTLD_NOLOAD);
    return library || !load ? library : open(soname, RTLD_NOW);
}

void *library_function(void *library, const char *name)
{
    static void *cache;
    void *(*symbol)(void *, const char *) = libc_function("dlsym", &cache);
    return symbol && library ? symbol(library, name) : NULL;
}

void library_take(void *library, const char *name, const bool *loaded, struct library_slot slot)
{
    void *function = library_function(library, name);
    /* Symbols are exchanged only after `loaded` was set: a look-up that found a hook sees it. */
    fence_acquire();
    if (load_acquire(loaded))
        return;
    store_relaxed(slot.exported, function);
    store_relaxed(slot.callable, function ? function : slot.absent);
}
