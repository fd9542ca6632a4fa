/* SPDX-License-Identifier: Apache-2.0 */
/* The door below the API: every ioctl of the process. All but the resource manager's type go on at
 * once; the type is also the frame buffer's, which rm_memory_ioctl tells apart. */
#include "abi/rm.h"
#include "base/atomic.h"
#include "base/elf.h"
#include "hook/door/door_symbol.h"
#include "hook/hook.h"
#include "rm/rm_memory.h"

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ioctl(2) is variadic in name only: every caller passes one pointer-sized argument or none. */
int door_ioctl(int fd, unsigned long request, void *argument) __asm__("ioctl") EXPORT;

static rm_ioctl_function *next_ioctl;

static int system_ioctl(int fd, unsigned long request, void *argument)
{
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

static bool is_first(void)
{
    return elf_next_function("ioctl", NULL) == (void *)door_ioctl;
}

/* At load, while the process has one thread: later the calling thread might hold the loader's
 * lock. Other libraries' constructors may come first; they get the system call. */
__attribute__((constructor)) static void find_next_ioctl(void)
{
    rm_ioctl_function *found =
        (rm_ioctl_function *)elf_next_function("ioctl", (const void *)find_next_ioctl);
    store_release(&next_ioctl, found);
    rm_memory_door_is_first = is_first;
}

int door_ioctl(int fd, unsigned long request, void *argument)
{
    rm_ioctl_function *next = load_acquire(&next_ioctl);
    if (__builtin_expect(!next, 0))
        next = system_ioctl;
    if (__builtin_expect(RM_REQUEST_TYPE(request) != RM_IOCTL_TYPE || door_symbol_is_spare, 1))
        return next(fd, request, argument);
    return rm_memory_ioctl(fd, request, argument, next);
}
