/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate by itself, to be preloaded: the door below the API with all that lies under it,
 * and rm/rm_channels.h for the test to call. */
#include "rm/rm_channels.h"
#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "base/elf.h"

int gate_ioctl(int fd, unsigned long request, void *argument) __asm__("ioctl");

static rm_ioctl_function *next_ioctl;

__attribute__((constructor)) static void find_next_ioctl(void)
{
    next_ioctl = (rm_ioctl_function *)elf_next_function("ioctl", (const void *)find_next_ioctl);
}

int gate_ioctl(int fd, unsigned long request, void *argument)
{
    return RM_REQUEST_TYPE(request) == RM_IOCTL_TYPE
               ? rm_memory_ioctl(fd, request, argument, next_ioctl)
               : next_ioctl(fd, request, argument);
}
