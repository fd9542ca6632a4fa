/* SPDX-License-Identifier: Apache-2.0 */
/* A futex word that processes share. */
#include "region/epoch.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "base/word.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The word changes before its sleepers wake, so that none goes to sleep on it after. */
void epoch_raise(struct vgpu_region *shared)
{
    int errno_kept = errno;
    (void)add_seq_cst(&shared->orders_epoch, 1u);
    syscall(SYS_futex, &shared->orders_epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = errno_kept;
}

void epoch_wait(uint32_t *epoch, uint32_t seen, uint64_t timeout_ns)
{
    if (!word_wait_shared(epoch, seen, timeout_ns))
        sleep_ns(timeout_ns < EPOCH_SLEEP_NS ? timeout_ns : EPOCH_SLEEP_NS);
}

/* Wakes and moves nobody: what is left of that call compares the word. As if it were private, for
 * which the kernel does not look up the file's page: nobody sleeps on it so. */
bool epoch_is(uint32_t *epoch, uint32_t seen)
{
    int errno_kept = errno;
    bool same = syscall(SYS_futex, epoch, FUTEX_CMP_REQUEUE_PRIVATE, 0, NULL, epoch, seen) == 0;
    errno = errno_kept;
    return same;
}

/* Files that follow each other would all count from 0. */
void epoch_arrive(struct vgpu_region *shared, bool fresh)
{
    if (fresh)
        store_release(&shared->orders_epoch, (uint32_t)(clock_now_ns() >> 8));
    epoch_raise(shared);
}
