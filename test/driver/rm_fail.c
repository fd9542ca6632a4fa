/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind libvgpu.so: from the n-th on (VGPU_TEST_RM_FAIL=n, from 1) refuses every
 * allocation of device memory (class 0x40) with the resource manager's "no memory", until
 * test_rm_allow() is called, and gives the file VGPU_TEST_RM_COUNT one byte an allocation. */
#define _GNU_SOURCE
#include "abi/rm.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int test_ioctl(int fd, unsigned long request, void *argument) __asm__("ioctl");
void test_rm_allow(void);

static int allowed;

void test_rm_allow(void)
{
    allowed = 1;
}

static void count(void)
{
    const char *path = getenv("VGPU_TEST_RM_COUNT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        (void)!write(fd, "x", 1);
        close(fd);
    }
}

int test_ioctl(int fd, unsigned long request, void *argument)
{
    static int (*next)(int, unsigned long, void *);
    static long seen;
    if (!next)
        next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    struct rm_alloc64 *call = argument;
    if (request == RM_IOCTL_ALLOC64 && call->class_id == RM_CLASS_MEMORY_LOCAL) {
        const char *nth = getenv("VGPU_TEST_RM_FAIL");
        count();
        if (nth && atol(nth) > 0 && ++seen >= atol(nth) && !allowed) {
            call->status = RM_ERR_NO_MEMORY;
            return 0;
        }
    }
    return next(fd, request, argument);
}
