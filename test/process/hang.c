/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: a file system that does not answer, as long as the file in VGPU_TEST_HANG exists, when
 * somebody looks at a path with "/region" in it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int lstat(const char *path, struct stat *status);
int lstat64(const char *path, struct stat64 *status);

static void wait_for_answer(const char *path)
{
    const char *flag = getenv("VGPU_TEST_HANG");
    while (flag && strstr(path, "/region") && access(flag, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

int lstat(const char *path, struct stat *status)
{
    int (*next)(const char *, struct stat *);
    *(void **)&next = dlsym(RTLD_NEXT, "lstat");
    wait_for_answer(path);
    return next(path, status);
}

int lstat64(const char *path, struct stat64 *status)
{
    int (*next)(const char *, struct stat64 *);
    *(void **)&next = dlsym(RTLD_NEXT, "lstat64");
    wait_for_answer(path);
    return next(path, status);
}
