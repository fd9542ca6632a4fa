/* SPDX-License-Identifier: Apache-2.0 */
/* What dlsym and dlvsym answer: the driver's function is looked up first, with the caller's own
 * handle, and only a function that the driver has and we replace is exchanged for its hook.
 * RTLD_NEXT depends on the caller's place, and a library that is loaded with RTLD_DEEPBIND calls
 * the C library's own dlsym: for these the driver's symbol table is exchanged
 * (door_table_exchange). */
#include "hook/door/door_symbol.h"

#include "base/atomic.h"
#include "base/elf.h"
#include "driver/library.h"
#include "hook/door/door_hold.h"
#include "hook/door/door_table.h"
#include "hook/hook.h"
#include "vgpu/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

struct answer {
    void *symbol;
    uint64_t answered; /* 0: jump to the next dlsym */
};

bool door_symbol_is_spare;

/* Read by the assembly. Never NULL once a libc is mapped. */
void *door_symbol_next_dlsym, *door_symbol_next_dlvsym, *door_symbol_next_dlopen;

/* version NULL: dlsym was called. */
struct answer door_symbol_answer(void *handle, const char *name, const char *version);

/* Before a dlopen with these arguments. */
void door_symbol_before_open(const char *file, int mode);

static void *no_symbol(void)
{
    return NULL;
}

/* Another copy of the library that the loader asks first has the program's calls, and both would
 * charge the driver's. A version that did not have vgpu_report yet is not seen. */
static bool is_behind_another(void)
{
    void *first = elf_next_function("vgpu_report", NULL);
    return first && first != (void *)vgpu_report;
}

/* At load, or at the first dlsym, if that comes before. */
__attribute__((constructor)) static void find_next(void)
{
    door_symbol_is_spare = is_behind_another();
    void *dlsym = library_next_function("dlsym");
    void *dlvsym = library_next_function("dlvsym");
    void *dlopen = library_next_function("dlopen");
    door_symbol_next_dlvsym = dlvsym ? dlvsym : (void *)no_symbol;
    door_symbol_next_dlopen = dlopen ? dlopen : (void *)no_symbol;
    door_symbol_next_dlsym = dlsym ? dlsym : (void *)no_symbol;
}

static int may_be_ours(const char *name)
{
    return (name[0] == 'c' && name[1] == 'u') ||
           (name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l');
}

static void *ask_next(void *handle, const char *name, const char *version)
{
    if (version) {
        void *(*dlvsym)(void *, const char *, const char *) =
            (void *(*)(void *, const char *, const char *))door_symbol_next_dlvsym;
        return dlvsym(handle, name, version);
    }
    return ((void *(*)(void *, const char *))door_symbol_next_dlsym)(handle, name);
}

struct answer door_symbol_answer(void *handle, const char *name, const char *version)
{
    struct answer next = {NULL, 0};
    if (__builtin_expect(!door_symbol_next_dlsym, 0))
        find_next();
    if (door_symbol_is_spare || !name || !may_be_ours(name))
        return next;
    void *real;
    void *hook = door_table_find(name, &real);
    if (hook && real && handle == RTLD_NEXT)
        door_table_exchange(name[0] == 'c' ? DOOR_LIBRARY_CUDA : DOOR_LIBRARY_NVML, false);
    if (handle == RTLD_NEXT || (!hook && !door_hold_may(name)))
        return next;
    void *found = ask_next(handle, name, version);
    if (!hook) {
        /* What is not the driver's is found from the caller's place, which may be another. */
        void *held = door_hold_found(found);
        return held == found ? next : (struct answer){held, 1};
    }
    /* Without a handle the first in the global scope may be our own export. Where the driver lacks
     * the function, asking for a version that no library has sets what dlerror tells. */
    bool ours = real && (found == hook || found == real);
    if (ours)
        report_door_used(version ? REPORT_DOOR_DLVSYM : REPORT_DOOR_DLSYM);
    if (found == hook)
        return (struct answer){real ? hook : ask_next(handle, name, "absent"), 1};
    return (struct answer){ours ? hook : found, 1};
}

/* What is loaded with RTLD_DEEPBIND finds its own libraries' functions before ours: the driver's
 * and the C library's dlsym, dlopen and ioctl, and so does a driver that comes with it. So the
 * driver is loaded before, without the flag. */
void door_symbol_before_open(const char *file, int mode)
{
    static bool tried;
    if (!door_symbol_next_dlopen)
        find_next();
    if (door_symbol_is_spare || !file || !(mode & RTLD_DEEPBIND) || (mode & RTLD_NOLOAD))
        return;
    int saved = errno;
    bool open = !load_acquire(&tried);
    door_table_exchange(DOOR_LIBRARY_CUDA, open);
    door_table_exchange(DOOR_LIBRARY_NVML, open);
    /* Not before: another thread's library would bring the driver along. */
    store_release(&tried, true);
    errno = saved;
}
