/* SPDX-License-Identifier: Apache-2.0 */
/* Three system calls that sleep. */
#include "base/sleep.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A system-call filter may permit only one of nanosleep and clock_nanosleep. Where it permits
 * neither this is a wait for a word that no thread changes. */
void sleep_ns(uint64_t ns)
{
    int errno_kept = errno;
    const struct timespec time = {
        .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    uint32_t constant = 0;
    if (syscall(SYS_nanosleep, &time, NULL) != 0 && errno != EINTR &&
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL) != 0 && errno != EINTR)
        (void)syscall(SYS_futex, &constant, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
    errno = errno_kept;
}
