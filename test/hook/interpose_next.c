/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer as profilers write them: hooks one driver function and one of the C library, and
 * goes on by dlsym(RTLD_NEXT). */
#include "abi/cuda.h"

#include <dlfcn.h>
#include <stddef.h>

unsigned test_next_calls(void);
void *test_next_of(const char *name);
int puts(const char *text);

static unsigned calls;

unsigned test_next_calls(void)
{
    return calls;
}

/* What RTLD_NEXT means to this library. */
void *test_next_of(const char *name)
{
    void *volatile found =
        dlsym(RTLD_NEXT, name); /* no tail call: the caller must be this library */
    return found;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    __typeof__(cuMemAlloc_v2) *next = (__typeof__(next))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    calls++;
    return next ? next(dptr, bytesize) : CUDA_ERROR_NOT_FOUND;
}

int puts(const char *text)
{
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");
    calls++;
    return next(text);
}
