/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer under which a machine has as much memory available as the test says: /proc/meminfo
 * is another file, by the variable or by the environment's VGPU_TEST_MEMINFO. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const char *test_meminfo; /* a path; NULL: the environment's, or the kernel's own */

int meminfo_open(const char *path, int flags, int mode) __asm__("open");
int meminfo_open64(const char *path, int flags, int mode) __asm__("open64");

static const char *place_of(const char *path)
{
    const char *other = test_meminfo ? test_meminfo : getenv("VGPU_TEST_MEMINFO");
    return other && !strcmp(path, "/proc/meminfo") ? other : path;
}

/* Its third argument is passed on, given or not. */
static int open_by(const char *name, const char *path, int flags, int mode)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    return next(place_of(path), flags, mode);
}

int meminfo_open(const char *path, int flags, int mode)
{
    return open_by("open", path, flags, mode);
}

int meminfo_open64(const char *path, int flags, int mode)
{
    return open_by("open64", path, flags, mode);
}
