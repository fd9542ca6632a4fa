/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's variables. */
#include "host/preload.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LD_PRELOAD and LD_LIBRARY_PATH split at some of these, and what follows "$" is replaced. */
#define LOADER_SPECIAL " :;$"

void preload_first(const char *variable, const char *value, char separator)
{
    const char *old = getenv(variable);
    char *joined = NULL;
    if (old && *old) {
        if (asprintf(&joined, "%s%c%s", value, separator, old) > 0)
            setenv(variable, joined, 1);
        free(joined);
    } else {
        setenv(variable, value, 1);
    }
}

/* What the loader only complains about would run the command without its limit. */
const char *preload_obstacle(const char *path)
{
    if (strpbrk(path, LOADER_SPECIAL))
        return "the loader takes no path with one of \"" LOADER_SPECIAL
               "\" in it; install it elsewhere";
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL) ? NULL : dlerror();
}

bool preload_names_library(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    return !strcmp(name, "libvgpu.so") || !strcmp(name, "libvgpu-control.so");
}
