/* SPDX-License-Identifier: Apache-2.0 */
/* By system call, because programs that interpose the C library's functions must not see it. */
#include "base/hold.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIGNAL_SET_BYTES 8 /* the kernel's, for 64 signals */

static uint64_t set_of(int signal)
{
    return 1ull << (signal - 1);
}

bool hold_begin(struct hold *ret_hold)
{
    const uint64_t both = set_of(SIGXFSZ) | set_of(SIGPIPE);
    int errno_kept = errno;
    struct hold hold = {0};
    bool held = syscall(SYS_rt_sigpending, &hold.pending, SIGNAL_SET_BYTES) == 0 &&
                syscall(SYS_rt_sigprocmask, SIG_BLOCK, &both, &hold.mask, SIGNAL_SET_BYTES) == 0;
    if (held)
        *ret_hold = hold;
    errno = errno_kept;
    return held;
}

void hold_end(const struct hold *hold, int raised)
{
    int errno_kept = errno;
    const struct timespec at_once = {0};
    if (raised && !(hold->pending & set_of(raised))) {
        const uint64_t set = set_of(raised);
        (void)syscall(SYS_rt_sigtimedwait, &set, NULL, &at_once, SIGNAL_SET_BYTES);
    }
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &hold->mask, NULL, SIGNAL_SET_BYTES);
    errno = errno_kept;
}
