/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvgpu-sim-rm.so: preloaded behind libvgpu.so, its ioctl answers for the machine's descriptors
 * and passes all others on to the next object's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "abi/rm.h"
#include "sim/machine/machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static int pass_on(int fd, unsigned long request, void *arg)
{
    static _Atomic(int (*)(int, unsigned long, ...)) next;
    int (*known)(int, unsigned long, ...) = atomic_load_explicit(&next, memory_order_relaxed);
    if (known == NULL) {
        *(void **)&known = dlsym(RTLD_NEXT, "ioctl");
        atomic_store_explicit(&next, known, memory_order_relaxed);
    }
    return known != NULL ? known(fd, request, arg) : (int)syscall(SYS_ioctl, fd, request, arg);
}

EXPORTED int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *arg = va_arg(arguments, void *);
    va_end(arguments);
    /* The frame buffer's ioctls share the letter but carry no direction. */
    if (RM_REQUEST_TYPE(request) != RM_IOCTL_TYPE ||
        _IOC_DIR(request) != (_IOC_READ | _IOC_WRITE) || !sim_rm_is_descriptor(fd))
        return pass_on(fd, request, arg);
    if (sim_description()->no_rm) {
        errno = sim_description()->sandbox_errno ? sim_description()->sandbox_errno : EINVAL;
        return -1;
    }
    return sim_rm_execute(fd, request, arg);
}
