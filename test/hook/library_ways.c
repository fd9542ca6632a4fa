/* SPDX-License-Identifier: Apache-2.0 */
/* A library of somebody else's, linked with the driver, that finds its functions in many ways. */
#include "library_ways.h"

#include "abi/cuda.h"

#include <dlfcn.h>
#include <string.h>

/* A name of its own that begins as the driver's do, looked for elsewhere as cuDNN's front library
 * does. */
int cudnnCreate(void *handle);
int cuWayOfItsOwn(void);

static void *open_driver(const char *name, int mode)
{
    return dlopen(strncmp(name, "nvml", 4) ? "libcuda.so.1" : "libnvidia-ml.so.1", mode);
}

/* Not as a tail call: RTLD_NEXT goes by the caller's place. */
static void *find(void *handle, const char *name)
{
    void *volatile found = dlsym(handle, name);
    return found;
}

void *library_way(enum library_way way, const char *name)
{
    switch (way) {
    case WAY_NEXT:
        return find(RTLD_NEXT, name);
    case WAY_DEFAULT:
        return find(RTLD_DEFAULT, name);
    case WAY_HANDLE:
        return find(open_driver(name, RTLD_LAZY | RTLD_LOCAL), name);
    case WAY_NOLOAD:
        return find(open_driver(name, RTLD_LAZY | RTLD_NOLOAD), name);
    case WAY_DEEPBIND:
        return find(open_driver(name, RTLD_LAZY | RTLD_DEEPBIND), name);
    case WAY_GLOBAL:
        return open_driver(name, RTLD_NOW | RTLD_GLOBAL) ? find(RTLD_DEFAULT, name) : NULL;
    case WAY_VERSION:
        return dlvsym(RTLD_NEXT, name, "libcuda.so.1");
    case WAY_MAIN:
        return find(dlopen(NULL, RTLD_LAZY), name);
    case WAY_PROCADDRESS: {
        __typeof__(cuGetProcAddress) *get = (__typeof__(get))find(RTLD_NEXT, "cuGetProcAddress");
        void *found = NULL;
        return get && get("cuMemAlloc", &found, 12000, 0) == CUDA_SUCCESS ? found : NULL;
    }
    case WAY_LINKED:
        return (void *)cuMemAlloc_v2;
    case WAYS:
        break;
    }
    return NULL;
}

int cuWayOfItsOwn(void)
{
    return 7;
}

int cudnnCreate(void *handle)
{
    int (*next)(void *) = (int (*)(void *))find(RTLD_NEXT, "cudnnCreate");
    return !next ? -1 : next == cudnnCreate ? -2 : next(handle);
}

int library_hides(void)
{
    return 1;
}

int library_own(void)
{
    return library_hides();
}
