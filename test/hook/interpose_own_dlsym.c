/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer with a dlsym of its own, which finds the next one as such libraries do: by
 * dlvsym(RTLD_NEXT) with each version that the C library has given it. */
#include <dlfcn.h>
#include <stddef.h>

unsigned test_own_dlsym_calls(void);

static unsigned calls;

unsigned test_own_dlsym_calls(void)
{
    return calls;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    void *(*next)(void *, const char *) = NULL;
    for (size_t i = 0; !next && i < sizeof(versions) / sizeof(versions[0]); i++)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    calls++;
    return next ? next(handle, name) : NULL;
}
