/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer that makes the resource manager's calls itself, past every other library's ioctl:
 * past the simulator's there is no kernel module, so it goes straight to that. */
#include <dlfcn.h>
#include <stdlib.h>

int ioctl(int fd, unsigned long request, void *argument);

int ioctl(int fd, unsigned long request, void *argument)
{
    static int (*manager)(int, unsigned long, void *);
    if (!manager) {
        void *library = dlopen(getenv("VGPU_TEST_WATCH_PRELOAD"), RTLD_NOW | RTLD_NOLOAD);
        *(void **)&manager = library ? dlsym(library, "ioctl") : NULL;
    }
    return manager ? manager(fd, request, argument) : -1;
}
