/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate by itself, to be preloaded: the door below the API with all that lies under it,
 * and rm/rm_channels.h for the test to call (gate.h). */
#include "gate.h"

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

const struct gate gate_functions = {
    .close = rm_channels_close,
    .open = rm_channels_open,
    .is_closed = rm_channels_is_closed,
    .hold_open = rm_channels_hold_open,
    .release = rm_channels_release,
    .count = rm_channels_count,
    .test = rm_channels_test,
    .state = rm_channels_state,
    .describe = rm_channels_describe,
    .set_timeslice = rm_channels_set_timeslice,
    .reset = rm_channels_reset,
};
