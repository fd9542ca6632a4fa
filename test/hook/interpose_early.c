/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer that looks functions up in its constructor, as OpenMP's runtimes and tracers do. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

void *test_early_found(const char *name, bool next);
unsigned test_early_looked(void);

static const char *const names[] = {"ompt_start_tool", "qsort", "ioctl", "dlsym", "cuMemAlloc_v2",
    "cuInit", "nvmlInit_v2", "custom"};
#define COUNT (sizeof(names) / sizeof(names[0]))

static void *found_next[COUNT], *found_default[COUNT];
static unsigned looked;

__attribute__((constructor)) static void look(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        found_next[i] = dlsym(RTLD_NEXT, names[i]);
        found_default[i] = dlsym(RTLD_DEFAULT, names[i]);
        looked++;
    }
}

void *test_early_found(const char *name, bool next)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (!strcmp(names[i], name))
            return next ? found_next[i] : found_default[i];
    }
    return NULL;
}

unsigned test_early_looked(void)
{
    return looked;
}
