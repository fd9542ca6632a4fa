/* SPDX-License-Identifier: Apache-2.0 */
/* An interposer behind us in which frees of the resource manager wait for as long as the test says:
 * what a context's end does whose kernels do not end. */
#include "abi/rm.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

int test_stuck_frees; /* 1: the next one waits; 2: one does; 0: none */

int stuck_ioctl(int fd, unsigned long request, void *argument) __asm__("ioctl");

int stuck_ioctl(int fd, unsigned long request, void *argument)
{
    int (*next)(int, unsigned long, void *) =
        (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    int wanted = 1;
    bool is_free =
        RM_REQUEST_TYPE(request) == RM_IOCTL_TYPE && RM_REQUEST_NR(request) == RM_NR_FREE;
    if (is_free && __atomic_compare_exchange_n(
                       &test_stuck_frees, &wanted, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        while (__atomic_load_n(&test_stuck_frees, __ATOMIC_SEQ_CST) == 2)
            usleep(1000);
    }
    return next(fd, request, argument);
}
